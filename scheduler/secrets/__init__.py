"""Secrets of tenants: sealed in the database, resolved when a job starts."""
