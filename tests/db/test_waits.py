"""How notes of waiting jobs are stored: by a hash that SQL makes too, in packed words."""

from __future__ import annotations

import psycopg

from core.waits import WaitKind, WaitNote
from db.waits import _of
from tests.db.builders import at

_KEY = b"SELECT ('x' || left(md5(%s || E'\\n' || %s || E'\\n' || %s), 16))::bit(64)::bigint"


def test_sql_makes_the_same_keys(shared_database_url: str) -> None:
    """Migration 0038 did: rows of releases before go on."""
    kind = WaitKind.REFUSAL
    with psycopg.connect(shared_database_url) as connection:
        for region, reason, folded in (("us-east1", "stockout 12", "stockout #"), ("", "é", "é")):
            row = connection.execute(_KEY, (str(kind), region, folded)).fetchone()
            assert row == (_of(WaitNote("u", kind, region, reason, at(1))).key,)
