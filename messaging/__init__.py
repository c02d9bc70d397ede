"""The bus: codec (bytes <-> core.messages), the Pub/Sub client, and its topics."""
