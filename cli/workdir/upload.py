"""A directory on its way to the service: what it has already is not sent."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import local
from typing import Any

from cli.client import Client, Refused, Unreachable, path
from cli.workdir.choice import BadWorkdir, user_home
from cli.workdir.hashes import HashCache, cache_directory, read_chunk, tree_of
from cli.workdir.scan import Scanned, amount, refuse_large, scan
from core.code_store import CodeRules
from stores.code_trees import compress, encode_pack, encode_tree, packed, tree_id, uses

AT_ONCE = 4
ROUNDS = 4
"""How often the service is asked what it lacks: once before and once after the chunks are sent; the
rest is for a service that was restored from a backup meanwhile."""
TRIES = 6
PAUSE_S = 0.5
TIMEOUT_S = 120.0
_AGAIN = frozenset({408, 429, 503})
"""408: the line was too slow for the moment, or four packs shared it."""
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a directory."""

    root: str
    tree_id: str
    files: int
    size: int
    sent: int
    """Bytes over the wire, without the list."""
    new_files: int

    def words(self) -> str:
        what = f"{self.files} files, {amount(self.size)}"
        if not self.new_files:
            return f"code: {what}, nothing new to send"
        return f"code: {what}; sent {self.new_files} new, {amount(self.sent)}"

    def json(self) -> Json:
        return {
            "directory": self.root,
            "tree_id": self.tree_id,
            "files": self.files,
            "bytes": self.size,
            "new_files": self.new_files,
            "sent_bytes": self.sent,
        }


def send_directory(open_client: Callable[[], Client], root: Path, tenant_id: str | None) -> Sent:
    """The directory as it is now, stored for jobs of the tenant."""
    query = {"tenant_id": tenant_id}
    with open_client() as client:
        now_ns = time.time_ns()  # noqa: TID251  # compared with the clock of the file system
        found = _looked_at(client, root, query)
        cache = HashCache(found.root, cache_directory(os.environ, user_home()))
        tree = tree_of(found, cache, now_ns)
        listed = encode_tree(tree)
        code = tree_id(listed)
        where = path("code", "trees", code)
        made = Sent(str(found.root), code, len(tree.files), tree.size, 0, 0)
        if _is_known(client, where, query):
            return made
        body, chunks, files = compress(listed), tree.chunks(), uses(tree)
        sender = _Sender(open_client, found.root, query)
        sizes = {chunk: size for _, chunk, size in tree.sizes_of_chunks()}
        sent, new = 0, set[str]()
        for _ in range(ROUNDS):
            missing = _again(lambda: client.put(where, body, query))["missing"]
            wanted = [one for first, last in missing for one in chunks[first : last + 1]]
            if not wanted:
                return Sent(made.root, code, made.files, made.size, sent, len(new))
            sent += sender.send([(one, sizes[one]) for one in wanted], files)
            new |= {file for one in wanted for file, _ in files[one]}
    raise BadWorkdir("the service lost chunks as often as they were sent: try again later")


def _looked_at(client: Client, root: Path, query: Json) -> Scanned:
    """What there is to send. Bounds are the service's own; it is asked only where it matters."""
    rules = CodeRules()
    found = scan(root, rules.tree_max_files * 10)
    if len(found.files) > rules.tree_max_files or found.size > rules.tree_max_bytes:
        told = client.get("/code", query)
        found = scan(root, told["tree_files_max"])
        refuse_large(found, told["tree_bytes_max"])
    if not found.files:
        raise BadWorkdir(
            f"{root} has nothing to send: .gitignore and .zenignore leave nothing; say --workdir "
            "none if the job needs no code"
        )
    return found


def _is_known(client: Client, where: str, query: Json) -> bool:
    try:
        client.get(where, query)
    except Refused as error:
        if error.status == 404 and error.code == "not_found":
            return False
        raise
    return True


class _Sender:
    """Packs of chunks, some at a time, each thread with a connection of its own."""

    def __init__(self, open_client: Callable[[], Client], root: Path, query: Json) -> None:
        self._open, self._root, self._query = open_client, root, query
        self._local = local()
        self._clients: list[Client] = []

    def send(
        self,
        chunks: Sequence[tuple[str, int]],
        files: dict[str, list[tuple[str, int]]],
    ) -> int:
        """How many bytes it took."""

        def one(group: list[str]) -> int:
            body = encode_pack([self._read(chunk, files) for chunk in group])
            _again(lambda: self._client().post("/code/packs", body, self._query))
            return len(body)

        with ThreadPoolExecutor(AT_ONCE, "upload") as threads:
            try:
                return sum(threads.map(one, packed(chunks)))
            except BaseException:
                threads.shutdown(cancel_futures=True)
                raise
            finally:
                for client in self._clients:
                    client.close()
                self._clients, self._local = [], local()

    def _read(self, chunk: str, files: dict[str, list[tuple[str, int]]]) -> bytes:
        file, offset = files[chunk][0]
        return read_chunk(self._root, file, offset, chunk)

    def _client(self) -> Client:
        client: Client | None = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = self._open()
            self._clients.append(client)
        return client


def _again(call: Callable[[], Json]) -> Json:
    """Everything that is sent may be sent again."""
    for left in reversed(range(TRIES)):
        try:
            return call()
        except (Refused, Unreachable) as error:
            if not left or (isinstance(error, Refused) and error.status not in _AGAIN):
                raise
        time.sleep(PAUSE_S * (TRIES - left))
    raise AssertionError("the last try returns or raises")
