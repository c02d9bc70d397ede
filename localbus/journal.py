"""The bus's memory on disk: SQLite in WAL mode.

Why SQLite and not a log file of our own: acknowledged messages free their pages at once, so the
disk stays bounded without compaction; torn writes are its problem, solved; a batch of a thousand
messages is one transaction and one fsync either way. The price is that a message is written twice
(WAL, then table), which at our sizes costs less than the fsync it shares.

Statements run in one writer thread (see commit.py); nothing else touches the connection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, assert_never

import msgspec

from localbus.changes import (
    Change,
    DeliveriesDropped,
    DeliveriesMarked,
    JournalContent,
    MessagesAdded,
    MessagesDropped,
    StoredDelivery,
    SubscriptionDropped,
    SubscriptionSaved,
    TopicDropped,
    TopicSaved,
)
from localbus.model import Message, SubscriptionSpec, TopicSpec

_FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS topics (name TEXT PRIMARY KEY, spec BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS subscriptions (
    id INTEGER PRIMARY KEY, spec BLOB NOT NULL, used REAL NOT NULL);
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY, topic TEXT NOT NULL, published REAL NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS deliveries (
    subscription INTEGER NOT NULL, message INTEGER NOT NULL, attempts INTEGER NOT NULL,
    acked INTEGER NOT NULL, PRIMARY KEY (subscription, message)) WITHOUT ROWID;
"""
_WAL_BYTES_MAX = 64 << 20
# Free pages beyond this many go back to the file system, so many at a time.
_FREE_PAGES_KEPT = 4_096
_FREE_PAGES_STEP = 1_024


Opener = Callable[[bytes], tuple[dict[str, str], str]]
"""Reads attributes and ordering key back out of a stored body."""


class JournalLocked(Exception):
    """Another process has this data directory open."""


class Journal:
    """One data directory."""

    def __init__(self, data_dir: Path, *, fsync: bool = True) -> None:
        self._path = data_dir / "bus.sqlite3"
        self._fsync = fsync
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        """Opens or makes the file. One process at a time: two brokers would hand out twice."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Handed from the opening thread to the writer thread, never used by two at once.
        connection = sqlite3.connect(
            self._path, isolation_level=None, check_same_thread=False, timeout=0.1
        )
        try:
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA synchronous={'FULL' if self._fsync else 'OFF'}")
            connection.execute(f"PRAGMA journal_size_limit={_WAL_BYTES_MAX}")
            connection.executescript(_SCHEMA)
        except sqlite3.OperationalError as error:
            connection.close()
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise JournalLocked(f"{self._path} is in use by another localbus") from error
            raise
        self._connection = connection
        self._check_format()

    def _check_format(self) -> None:
        found = self._meta("format")
        if found not in (0, _FORMAT):
            self.close()
            raise ValueError(f"{self._path}: got format {found}, expected {_FORMAT}")
        self._set_meta("format", _FORMAT)

    def close(self) -> None:
        """Closes the file; a clean close also empties the WAL."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _db(self) -> sqlite3.Connection:
        assert self._connection is not None, "the journal is not open"
        return self._connection

    def _meta(self, name: str) -> int:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return int(row[0]) if row else 0

    def _set_meta(self, name: str, value: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def load(self, opener: Opener) -> JournalContent:
        """Everything that is kept, and the number of this start."""
        boot = self._meta("boot") + 1
        self._set_meta("boot", boot)
        topics = tuple(
            msgspec.json.decode(spec, type=TopicSpec)
            for (spec,) in self._db.execute("SELECT spec FROM topics ORDER BY name")
        )
        subscriptions = tuple(
            SubscriptionSaved(id_, msgspec.json.decode(spec, type=SubscriptionSpec), used)
            for id_, spec, used in self._db.execute("SELECT id, spec, used FROM subscriptions")
        )
        deliveries = tuple(
            StoredDelivery(subscription, message, attempts, bool(acked))
            for subscription, message, attempts, acked in self._db.execute(
                "SELECT subscription, message, attempts, acked FROM deliveries ORDER BY message"
            )
        )
        return JournalContent(
            boot, topics, subscriptions, tuple(self._messages(opener)), deliveries
        )

    def _messages(self, opener: Opener) -> Iterable[Message]:
        rows = self._db.execute("SELECT id, topic, published, body FROM messages ORDER BY id")
        for id_, topic, published, body in rows:
            attributes, ordering_key = opener(body)
            yield Message(id_, topic, published, attributes, ordering_key, body)

    def write(self, changes: Sequence[Change]) -> None:
        """All or nothing, on disk when it returns."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for change in changes:
                for sql, rows in _statements(change):
                    self._db.executemany(sql, rows)
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._give_back_pages()

    def _give_back_pages(self) -> None:
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        if free > _FREE_PAGES_KEPT:
            # execute() would step the statement once, which frees one page.
            self._db.executescript(f"PRAGMA incremental_vacuum({_FREE_PAGES_STEP})")


_Statement = tuple[str, Sequence[tuple[Any, ...]]]


def _statements(change: Change) -> list[_Statement]:
    match change:
        case TopicSaved(spec):
            row = (spec.name, msgspec.json.encode(spec))
            return [("INSERT OR REPLACE INTO topics VALUES (?, ?)", [row])]
        case TopicDropped(name):
            return [("DELETE FROM topics WHERE name = ?", [(name,)])]
        case SubscriptionSaved(id_, spec, used):
            saved = (id_, msgspec.json.encode(spec), used)
            return [("INSERT OR REPLACE INTO subscriptions VALUES (?, ?, ?)", [saved])]
        case SubscriptionDropped(id_):
            return [
                ("DELETE FROM subscriptions WHERE id = ?", [(id_,)]),
                ("DELETE FROM deliveries WHERE subscription = ?", [(id_,)]),
            ]
        case _:
            return _traffic(change)


def _traffic(
    change: MessagesAdded | MessagesDropped | DeliveriesDropped | DeliveriesMarked,
) -> list[_Statement]:
    match change:
        case MessagesAdded(messages, deliveries):
            return [
                (
                    "INSERT INTO messages VALUES (?, ?, ?, ?)",
                    [(m.id, m.topic, m.published, m.body) for m in messages],
                ),
                ("INSERT INTO deliveries VALUES (?, ?, 0, 0)", deliveries),
            ]
        case MessagesDropped(ids):
            return [("DELETE FROM messages WHERE id = ?", [(id_,) for id_ in ids])]
        case DeliveriesDropped(subscription, ids):
            return [
                (
                    "DELETE FROM deliveries WHERE subscription = ? AND message = ?",
                    [(subscription, id_) for id_ in ids],
                )
            ]
        case DeliveriesMarked(subscription, rows):
            return [
                (
                    "INSERT OR REPLACE INTO deliveries VALUES (?, ?, ?, ?)",
                    [(subscription, id_, attempts, acked) for id_, attempts, acked in rows],
                )
            ]
        case _:
            assert_never(change)
