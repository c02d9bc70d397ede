"""A durable server that speaks Google Pub/Sub, for runs without Google.

The broker (pure) decides, the journal (SQLite) remembers, the gRPC and REST doors translate.
"""
