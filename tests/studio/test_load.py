"""The studio under load: few long bodies at once, one parsed at a time, nobody who holds a connection for ever."""

import asyncio
import json
import socket
import time
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import pytest

from tests.studio.conftest import serving
from torchcaps.apps.studio import guards, lines
from torchcaps.apps.studio.guards import Guard
from torchcaps.apps.studio.server import create_app

HELLO = b"GET /api/hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
LONG = 100_000


def head(size, path="/api/clusters", more=""):
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n{more}\r\n".encode()


@contextmanager
def line_to(address):
    place = urlsplit(address)
    with socket.create_connection((place.hostname, place.port), timeout=20) as line:
        yield line


def answer_to(line):
    """All that comes until the line is closed, or reset."""
    told = b""
    try:
        while part := line.recv(100_000):
            told += part
    except ConnectionError:
        pass
    return told


def ask(address, sent):
    with line_to(address) as line:
        line.sendall(sent)
        return answer_to(line)


@pytest.fixture
def hasty(monkeypatch):
    """A studio without networks, with one place for long bodies and little patience."""
    monkeypatch.setattr(guards, "PLACES", 1)
    monkeypatch.setattr(guards, "WAIT", 0.2)
    monkeypatch.setattr(lines, "PATIENCE", 0.6)
    with serving(create_app([])) as address:
        yield address


@pytest.fixture
def calm(monkeypatch):
    """The same, but with patience."""
    monkeypatch.setattr(guards, "PLACES", 1)
    monkeypatch.setattr(guards, "WAIT", 0.2)
    with serving(create_app([])) as address:
        yield address


def test_a_long_body_without_a_place_is_told_to_come_again(calm):
    with line_to(calm) as slow:
        slow.sendall(head(LONG))
        time.sleep(0.1)
        told = ask(calm, head(LONG, more="Connection: close\r\n") + b" " * LONG)
    start, body = told.split(b"\r\n\r\n")
    assert start.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nretry-after: 1\r\n" in start
    said = json.loads(body)["error"]
    assert said == "studio: expected at most 1 long questions at once, got more. Ask again in a second."


def test_a_short_body_needs_no_place(calm):
    with line_to(calm) as slow:
        slow.sendall(head(LONG))
        time.sleep(0.1)
        assert ask(calm, head(2, more="Connection: close\r\n") + b"{}").startswith(b"HTTP/1.1 422 ")


def test_a_long_body_gets_the_place_of_one_that_is_done(calm):
    for _ in range(3):
        assert ask(calm, head(LONG, more="Connection: close\r\n") + b" " * LONG).startswith(b"HTTP/1.1 422 ")


def test_a_body_that_stops_is_closed_and_leaves_its_place(hasty):
    with line_to(hasty) as slow:
        slow.sendall(head(LONG) + b" " * 1000)
        assert answer_to(slow) == b""
    assert ask(hasty, head(LONG, more="Connection: close\r\n") + b" " * LONG).startswith(b"HTTP/1.1 422 ")


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: loc", HELLO.replace(b"close", b"keep-alive") + b"G"])
def test_a_line_without_a_whole_request_is_closed(hasty, sent):
    with line_to(hasty) as slow:
        slow.sendall(sent)
        assert answer_to(slow).startswith(b"HTTP/1.1 200 " if sent.endswith(b"G") else b"")


def test_dripping_headers_are_no_progress(hasty):
    with line_to(hasty) as slow, pytest.raises(ConnectionError):  # noqa: PT012
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        for _ in range(100):
            slow.sendall(b"X: y\r\n")
            time.sleep(0.1)


def test_an_answer_that_nobody_takes_is_given_up(monkeypatch):
    monkeypatch.setattr(lines, "PATIENCE", 0.6)
    ended = []

    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(400):
            await send({"type": "http.response.body", "body": bytes(100_000), "more_body": True})
        ended.append(await receive())

    with serving(app) as address, line_to(address) as slow:
        slow.sendall(HELLO)
        for _ in range(100):
            time.sleep(0.1)
            if ended:
                break
        assert ended == [{"type": "http.disconnect"}]


def test_work_that_takes_long_is_not_given_up(monkeypatch):
    monkeypatch.setattr(lines, "PATIENCE", 0.3)

    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        await receive()
        await asyncio.sleep(1.2)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    with serving(app) as address:
        assert ask(address, HELLO).startswith(b"HTTP/1.1 204 ")


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: loc", head(LONG) + b" ", head(2) + b"{"])
def test_a_visitor_is_answered_beside_more_slow_lines_than_there_may_be(monkeypatch, sent):
    monkeypatch.setattr(lines, "MOST", 20)
    with serving(create_app([])) as address, ExitStack() as slow:
        for _ in range(60):
            slow.enter_context(line_to(address)).sendall(sent)
        assert ask(address, HELLO).startswith(b"HTTP/1.1 200 ")


def test_a_body_of_unknown_length_is_refused(calm):
    sent = b"POST /api/digit HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    told = ask(calm, sent)
    assert told.startswith(b"HTTP/1.1 411 ")
    assert b"studio: expected a body with its Content-Length, got one in chunks. Send it whole." in told


@pytest.mark.parametrize(
    "size",
    ["²".encode("latin-1"), b"9" * 5000, b"-1", b"", b"2000001"],
    ids=["squared", "digits", "negative", "none", "long"],
)
def test_a_length_that_is_none_is_refused_by_the_guard_itself(size):
    sent = []

    async def send(message):
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-length", size)]
    asyncio.run(Guard(None)({"type": "http", "scheme": "http", "headers": headers}, None, send))
    assert sent[0]["status"] == 413


def test_headers_are_short(calm):
    told = ask(calm, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 40_000)
    assert told.startswith(b"HTTP/1.1 400 ") or told == b""


def test_bodies_are_given_to_the_app_one_at_a_time():
    now, most = 0, 0

    async def app(scope, receive, send):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await receive()
        await asyncio.sleep(0.001)
        now -= 1
        await send({"type": "http.response.start", "status": 204})
        await asyncio.sleep(0.05)  # an asker who reads slowly does not hold up the next
        await send({"type": "http.response.body"})

    async def one(guard):
        async def receive():
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message):
            pass

        headers = [(b"host", b"localhost"), (b"content-length", b"2")]
        await guard({"type": "http", "scheme": "http", "headers": headers}, receive, send)

    async def several():
        guard = Guard(app)
        start = time.perf_counter()
        await asyncio.gather(*(one(guard) for _ in range(60)))
        return time.perf_counter() - start

    taken = asyncio.run(several())
    assert most == 1
    assert taken < 60 * 0.05
