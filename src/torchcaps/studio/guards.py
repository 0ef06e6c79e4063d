"""What stands before the studio: whom it answers, how much it reads, and what browsers are told about it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from fastapi.responses import JSONResponse

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

BODY = 2_000_000  # bytes: an image of 512 x 512 pixels with some room
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
    """Refuses what no page of ours would ask, before the app sees it, and adds `HEADERS` to every answer.

    A page of another site can make a browser send requests here. It is told apart by its Origin; and where it makes its
    own name point to this machine (DNS rebinding), by the Host that the browser then sends.
    """

    def __init__(self, app: App, host: str = "127.0.0.1") -> None:
        self.app = app
        self.host = host

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message.get("headers", []),
                    *((name.lower().encode(), value.encode()) for name, value in HEADERS.items()),
                ]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            body = await _read(receive)
            if body is None:
                refusal = 413, f"studio: expected at most {BODY:,} bytes, got more. Send a smaller image."
        if refusal is not None:
            status, sentence = refusal
            headers = {"Connection": "close"} if status == 413 else None
            await JSONResponse({"error": sentence}, status, headers)(scope, receive, send_guarded)
            return
        await self.app(scope, _again(body or b"", receive), send_guarded)

    def _refusal(self, scope: MutableMapping[str, Any]) -> tuple[int, str] | None:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        origins = [value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"]
        sizes = [value for name, value in scope["headers"] if name == b"content-length"]
        if len(hosts) != 1 or not answers_to(hosts[0], self.host):
            got = repr(", ".join(hosts))[:80] if hosts else "none"
            return 403, f"studio: expected the name of this machine as Host, got {got}. Use the address it printed."
        if any(origin.lower() != f"{scope['scheme']}://{hosts[0]}".lower() for origin in origins):
            return (
                403,
                f"studio: expected a question from its own page, got one from {origins[0]!r:.80}. Open the page.",
            )
        if any(not size.isdigit() or int(size) > BODY for size in sizes):
            return 413, f"studio: expected at most {BODY:,} bytes, got more. Send a smaller image."
        return None


def answers_to(named: str, host: str) -> bool:
    """Whether a server that listens at `host` may be called by this Host header.

    At a loopback address only by such, and localhost; elsewhere by any address in numbers, which nobody can make point
    here, by the name it was given, and by the name of the machine.
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
    """Does this address reach this machine only?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _read(receive: Receive) -> bytes | None:
    """The body of a request; None if it is too long."""
    parts: list[bytes] = []
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            break
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
        if sum(map(len, parts)) > BODY:
            return None
    return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """Hand a body that was read already to the app; after that, whatever comes."""
    told = False

    async def receive_again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again
