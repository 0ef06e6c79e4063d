"""The security of the studio: allowed hosts and origins, limits on requests, and security headers."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

from fastapi.responses import JSONResponse

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

BODY = 2_000_000  # bytes: an image of 512 x 512 pixels with some room
SHORT = 65_536  # bytes of a body that is not limited in number
PLACES = 4  # longer bodies at the same time
WAIT = 2.0  # seconds that a longer body waits for its turn
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class Guard:
    """Rejects requests that the page would not send, before the app sees them, and adds `HEADERS` to every response.

    A page of another site can make a browser send requests here. It is recognized by its Origin header or, if its
    domain name resolves to this machine (DNS rebinding), by its Host header.
    """

    def __init__(self, app: App, host: str = "127.0.0.1") -> None:
        self.app = app
        self.host = host
        self.places = asyncio.Semaphore(PLACES)
        self.turn = asyncio.Lock()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        with ExitStack() as held:  # until the response starts

            async def send_guarded(message: Message) -> None:
                held.close()
                if message["type"] == "http.response.start":
                    message["headers"] = [
                        *message.get("headers", []),
                        *((name.lower().encode(), value.encode()) for name, value in HEADERS.items()),
                    ]
                await send(message)

            refusal = self._refusal(scope)
            if refusal is not None:
                status, sentence = refusal
                headers = {"Connection": "close"} if status in (411, 413) else None
                await JSONResponse({"error": sentence}, status, headers)(scope, receive, send_guarded)
                return
            size = max(map(int, _values(scope, b"content-length")), default=0)
            if size > SHORT and not await self._placed(held):
                await _read(receive, keep=False)  # a client that is still sending would not read the response
                sentence = f"studio: expected at most {PLACES} long questions at once, got more. Ask again in a second."
                await JSONResponse({"error": sentence}, 503, {"Retry-After": "1"})(scope, receive, send_guarded)
                return
            if size > 0:
                receive = _again(await _read(receive), receive)
                await self.turn.acquire()  # parsed, a body takes far more memory than it has bytes: one at a time
                held.callback(self.turn.release)
            await self.app(scope, receive, send_guarded)

    async def _placed(self, held: ExitStack) -> bool:
        """Wait a short time for one of the slots for long bodies."""
        try:
            await asyncio.wait_for(self.places.acquire(), WAIT)
        except asyncio.TimeoutError:  # another error than TimeoutError in Python 3.10
            return False
        held.callback(self.places.release)
        return True

    def _refusal(self, scope: MutableMapping[str, Any]) -> tuple[int, str] | None:
        hosts, origins = _values(scope, b"host"), _values(scope, b"origin")
        if len(hosts) != 1 or not answers_to(hosts[0], self.host):
            got = repr(", ".join(hosts))[:80] if hosts else "none"
            return 403, f"studio: expected the name of this machine as Host, got {got}. Use the address it printed."
        if any(origin.lower() != f"{scope['scheme']}://{hosts[0]}".lower() for origin in origins):
            return (
                403,
                f"studio: expected a question from its own page, got one from {origins[0]!r:.80}. Open the page.",
            )
        if _values(scope, b"transfer-encoding"):
            return 411, "studio: expected a body with its Content-Length, got one in chunks. Send it whole."
        sizes = _values(scope, b"content-length")
        if any(not size.isdecimal() or len(size) > 12 or int(size) > BODY for size in sizes):
            return 413, f"studio: expected at most {BODY:,} bytes, got more. Send a smaller image."
        return None


def answers_to(named: str, host: str) -> bool:
    """Whether a server that listens at `host` may be called by this Host header.

    At a loopback address: only loopback addresses and localhost. Elsewhere: any numerical address, which needs no DNS,
    the name that it listens at, and the name of the machine.
    """
    try:
        name = urlsplit(f"//{named}").hostname or ""
        port = urlsplit(f"//{named}").port
    except ValueError:
        return False
    if named.lower() not in (name, f"{name}:{port}", f"[{name}]", f"[{name}]:{port}"):
        return False
    if name in ("localhost", host.lower()):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return not is_local(host) and name == socket.gethostname().lower()
    return address.is_loopback or not is_local(host)


def is_local(host: str) -> bool:
    """Whether this address reaches this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _values(scope: MutableMapping[str, Any], header: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == header]


async def _read(receive: Receive, keep: bool = True) -> bytes:
    """The body of a request, or the part received before the client left; the server enforces its Content-Length."""
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if keep:
            body += message.get("body", b"")
        more = message["type"] == "http.request" and message.get("more_body", False)
    return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """Pass a body that was already read to the app, then all further messages."""
    told = False

    async def receive_again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again
