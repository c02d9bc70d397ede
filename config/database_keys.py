"""The keys of the database: its logins, and whether its roles are needed."""

from __future__ import annotations

from typing import Final

from config.keys import Key
from config.value_types import FLAG, POSTGRES, optional

DATABASE_KEYS: Final[tuple[Key, ...]] = (
    Key(
        "database_url",
        POSTGRES,
        "postgresql://127.0.0.1:5432/zen",
        "PostgreSQL, the one truth.",
        secret=True,
        alias="DATABASE_URL",
    ),
    Key(
        "api_database_url",
        optional(POSTGRES),
        None,
        "A login of its own for what is read for callers, with the role zen_api alone; null: that "
        "of `database_url`.",
        secret=True,
    ),
    Key(
        "database_roles",
        FLAG,
        True,
        "Serve only where the database lets us become its roles zen_leader and zen_api; false: the "
        "rights of the login count, without row-level security.",
    ),
)
