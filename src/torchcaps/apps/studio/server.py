"""The server of the studio: routes, error messages, and the choice of a free port."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from torchcaps._core.errors import InputError, check_choice, check_range, input_error
from torchcaps.analysis.points import POINTS
from torchcaps.apps.studio import rooms
from torchcaps.apps.studio.guards import Guard
from torchcaps.apps.studio.lines import Line
from torchcaps.apps.studio.networks import Network
from torchcaps.apps.studio.routings import describe_routings

STATIC = Path(__file__).parent / "static"
# Explicit, because the system's list may give scripts another type, which browsers reject.
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# The errors of pydantic, in the words of all messages.
WANTED = {
    "float_type": "a number",
    "finite_number": "a finite number",
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing", "int_parsing_size"), "a whole number"),
    "string_type": "a word",
    "list_type": "a list",
    **dict.fromkeys(("dict_type", "model_attributes_type"), "an object"),
    "less_than_equal": "at most {le:g}",
    "greater_than_equal": "at least {ge:g}",
}
PORT = 8760
TRIES = 40  # ports to try
HEAD = 16_384  # bytes of request headers


def create_app(networks: Sequence[Network], host: str = "127.0.0.1") -> FastAPI:
    """The studio with these networks, for a server that listens at `host`."""
    app = FastAPI(title="torchcaps studio", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.add_middleware(Guard, host=host)
    known = {network.name: network for network in networks}
    hello = {
        "networks": [network.describe() for network in networks],
        "routings": describe_routings(),
        "points": list(POINTS),
    }
    turn = asyncio.Lock()

    def network_of(name: str) -> Network:
        check_choice("studio", "network", name[:80], list(known))
        return known[name]

    async def answer(request: Request, work: Callable[[], dict[str, Any]]) -> Response:
        """Run one request at a time, outside the event loop; requests of disconnected clients are skipped."""
        async with turn:
            if await request.is_disconnected():
                return Response(status_code=499)
            try:
                return await run_in_threadpool(_as_json, work)
            except InputError:
                raise
            except Exception as error:
                traceback.print_exc()
                sentence = (
                    f"studio: expected to have an answer, got {type(error).__name__}. See the terminal for details."
                )
                return JSONResponse({"error": sentence}, 500)

    @app.get("/{name}")
    @app.get("/")
    async def page(name: str = "index.html") -> FileResponse:
        if name not in {path.name for path in STATIC.iterdir() if path.is_file()}:
            raise HTTPException(404)
        return FileResponse(STATIC / name, media_type=TYPES.get(Path(name).suffix))

    @app.post("/api/clusters")
    async def api_clusters(request: Request, asked: rooms.ClustersAsked) -> Response:
        return await answer(request, partial(rooms.clusters_room, asked))

    @app.post("/api/digit")
    async def api_digit(request: Request, asked: rooms.DigitAsked) -> Response:
        return await answer(request, partial(rooms.digit_room, network_of(asked.network), asked))

    @app.get("/api/examples")
    async def api_examples(request: Request, network: str, count: int = Query(default=20, ge=1, le=200)) -> Response:
        return await answer(request, partial(rooms.examples_room, network_of(network), count))

    @app.get("/api/hello")
    async def api_hello() -> JSONResponse:
        return JSONResponse(hello)

    @app.get("/api/points")
    async def api_points(
        request: Request, name: str = "blobs", seed: int = Query(default=0, ge=0, le=2**31 - 1)
    ) -> Response:
        return await answer(request, partial(rooms.points_room, name[:80], seed))

    @app.post("/api/pose")
    async def api_pose(request: Request, asked: rooms.PoseAsked) -> Response:
        return await answer(request, partial(rooms.pose_room, network_of(asked.network), asked))

    @app.post("/api/tree")
    async def api_tree(request: Request, asked: rooms.ImageAsked) -> Response:
        return await answer(request, partial(rooms.tree_room, network_of(asked.network), asked))

    @app.post("/api/votes")
    async def api_votes(request: Request, asked: rooms.DigitAsked) -> Response:
        return await answer(request, partial(rooms.votes_room, network_of(asked.network), asked))

    app.add_exception_handler(InputError, _on_input)
    app.add_exception_handler(RequestValidationError, _on_input)
    app.add_exception_handler(HTTPException, _on_http)
    return app


def _as_json(work: Callable[[], dict[str, Any]]) -> Response:
    """The JSON of a result; an `InputError` for NaN and infinity."""
    told = work()
    try:
        text = json.dumps(told, allow_nan=False, separators=(",", ":"))
    except ValueError:
        remedy = "Choose other points, pixels or options."
        raise input_error("studio", "numbers that stay finite", "some that do not", remedy) from None
    return Response(text, media_type="application/json")


async def _on_input(request: Request, error: Exception) -> JSONResponse:
    sentence = _sentence(error) if isinstance(error, RequestValidationError) else str(error)
    _forget(error)
    return JSONResponse({"error": sentence}, 422)


async def _on_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    _forget(error)
    what = f"{request.method} {request.url.path[:80]}"
    said = {
        404: f"studio: expected a page or question that it knows, got {what}. Start at /.",
        405: f"studio: expected another method, got {what}. GET what is read, POST what is computed.",
    }
    sentence = said.get(error.status_code, f"studio: expected a question in JSON, got {error.detail}. Check it.")
    return JSONResponse({"error": sentence}, error.status_code)


def _forget(error: BaseException | None) -> None:
    """Clear the traceback of an error, whose frames would keep the parsed body in memory."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _sentence(error: RequestValidationError) -> str:
    """The first validation error, in the form of all messages."""
    first = error.errors()[0]
    kind, told = first["type"], first.get("ctx", {})
    where = ".".join(str(place) for place in first["loc"][1:] if place not in rooms.LAYOUTS)[:80]
    if kind == "json_invalid":
        return f"studio: expected JSON, got something else (at {where}). Check it."
    if kind == "missing":
        return f"studio: expected {where or 'a JSON object'}, got none. Add it."
    if kind == "extra_forbidden":
        return f"studio: expected nothing beside what it knows, got {where}. Drop it."
    if kind in ("too_short", "too_long"):
        bound = f"at least {told['min_length']}" if kind == "too_short" else f"at most {told['max_length']}"
        return f"studio: expected {bound} in {where or 'the question'}, got {told['actual_length']}. Correct it."
    got = repr(first.get("input"))
    got = got if len(got) <= 60 else f"{got[:57]}..."
    wanted = WANTED[kind].format_map(told) if kind in WANTED else first["msg"]
    return f"studio: expected {where or 'the question'} to be {wanted}, got {got}. Correct it."


def free_socket(host: str, port: int | None) -> socket.socket:
    """A socket at this port; default: at the first free one from `PORT` on."""
    if port is not None:
        check_range("studio", "port", port, 0, 65535)
    if not host.strip():
        raise input_error(
            "studio", "an address to listen at", repr(host), "Leave --host out, or use 0.0.0.0 for all addresses."
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reason = ""
    for tried in [port] if port is not None else range(PORT, PORT + TRIES):
        # With an explicit protocol asyncio disables Nagle's algorithm, which delays small responses by 40 ms.
        found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if os.name == "posix":  # elsewhere it would let two servers share a port
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, tried))
            found.listen(64)
        except (OSError, UnicodeError) as error:  # UnicodeError for invalid host names
            found.close()
            reason = getattr(error, "strerror", None) or str(error)
            if getattr(error, "errno", None) != errno.EADDRINUSE:
                break
        else:
            return found
    where = f"{host}, port {port}" if port is not None else f"{host}, from port {PORT} on"
    raise input_error("studio", f"a free port ({where})", reason, "Choose another --port or --host.")


def address_of(listening: socket.socket, host: str) -> str:
    """The URL for a browser on this machine."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    shown = f"[{shown}]" if ":" in shown else shown
    return f"http://{shown}:{listening.getsockname()[1]}/"


def make_server(app: FastAPI) -> uvicorn.Server:
    """A server without logs that stops soon after Ctrl-C; `run(sockets=[...])` starts it."""
    config = uvicorn.Config(
        app,
        http=Line,
        ws="none",
        log_level="error",  # warnings about invalid requests would let clients fill the terminal
        access_log=False,
        server_header=False,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=HEAD,
    )
    return uvicorn.Server(config)


__all__ = ["PORT", "address_of", "create_app", "free_socket", "make_server"]
