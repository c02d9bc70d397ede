"""Unix sockets in virtual time: one line there, one line back from the listener of a path."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sim.virtual.loop import VirtualLoop

Answer = Callable[[bytes], Awaitable[bytes | None]]
"""What comes back for a line; None: the connection ends without an answer."""


class Connection(asyncio.Transport):
    """A client's end. The answering side lives on when the client is killed."""

    def __init__(
        self, loop: VirtualLoop, protocol: asyncio.StreamReaderProtocol, answer: Answer
    ) -> None:
        super().__init__()
        self._loop, self._protocol, self._answer = loop, protocol, answer
        self._closed = False
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._loop.later(0.0, lambda: self._loop.create_task(self._talk(bytes(data))))

    async def _talk(self, line: bytes) -> None:
        answer = await self._answer(line)
        if self._closed:
            return
        if answer is None:
            self.close()
        else:
            self._protocol.data_received(answer)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._protocol.connection_lost(None)

    def is_closing(self) -> bool:
        return self._closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        del name
        return default


class SocketLoop(VirtualLoop):
    """A loop with the only sockets that a simulated process may open."""

    def __init__(self) -> None:
        super().__init__()
        self.listening: dict[str, Answer] = {}
        """Path of a socket → what answers there."""

    async def create_unix_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], path: str, **_: Any
    ) -> tuple[Connection, Any]:
        if path not in self.listening:
            raise FileNotFoundError(path)
        protocol = protocol_factory()
        return Connection(self, protocol, self.listening[path]), protocol
