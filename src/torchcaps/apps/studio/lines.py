"""The connections of the studio: their maximum number, and timeouts."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 256  # connections at once
PATIENCE = 10.0  # seconds for the headers of a request, for its body, and for taking the answer


class Line(H11Protocol):
    """A connection that is closed when the server has waited for it for `PATIENCE`; slow bytes do not extend this.

    If there are more than `MOST`, the one that the server has waited for longest is closed, so that a fast client is
    served among a thousand slow ones.
    """

    since = 0.0  # when the server began to wait
    seen: Any = None  # the last request
    watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look()
        if len(self.connections) > MOST:
            slow = [line for line in self.connections if isinstance(line, Line) and line.waits()]
            min(slow, key=lambda line: line.since).cut()  # there is one at least: this

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not self.seen:
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.watch is not None:
            self.watch.cancel()
        super().connection_lost(exc)

    def waits(self) -> bool:
        """Whether it is the client's turn: to send a request, its body, or to read the response."""
        return self.cycle is None or self.cycle.more_body or self.cycle.response_started

    def cut(self) -> None:
        self.connections.discard(self)
        self.transport.abort()  # close would wait until the response is read

    def _begin(self) -> None:
        self.seen, self.since = self.cycle, self.loop.time()

    def _look(self) -> None:
        if self.cycle is not self.seen or not self.waits() or not self.since:
            self._begin()
        if self.loop.time() - self.since >= PATIENCE:
            self.cut()
        else:
            self.watch = self.loop.call_later(PATIENCE / 4, self._look)


__all__ = ["MOST", "PATIENCE", "Line"]
