"""Alembic's entry: db/migrate.py hands over a connection with a transaction and a lock on it."""

from __future__ import annotations

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection)
with context.begin_transaction():
    context.run_migrations()
