"""The studio as strangers use it: a real server, thousands of mixed requests, slow connections, bursts of long bodies.

Only the server that is started here is asked, at 127.0.0.1; every loop has a bound, and every wait too.
"""

from __future__ import annotations

import json
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from torture.result import Result

MEMORY = 600  # megabytes that the server may reach
SLOW, VISITS, BURST, BURSTS = 500, 5, 150, 2
LONG = 1_900_000  # bytes of a body
NETWORK = "mnist-efficient"
BLANK = [[0] * 28] * 28
ROOMS: dict[str, dict[str, Any]] = {
    "clusters": {"points": [[0, 0], [1, 1], [2, 0]], "routing": "em", "parents": 2, "iterations": 2},
    "digit": {"network": NETWORK, "pixels": BLANK},
    "pose": {"network": NETWORK, "label": 1, "pose": [0] * 16},
    "tree": {"network": NETWORK, "pixels": BLANK},
    "votes": {"network": NETWORK, "pixels": BLANK},
}
PAGES = ("/", "/api/hello", "/api/points?name=blobs&seed=3", f"/api/examples?network={NETWORK}&count=3")
ODD: tuple[Any, ...] = (None, True, -1, 1e308, 10**40, "", "x" * 500, [], [[]], [[[[]]]], {}, {"a": [None]})
# Whatever may be asked, only these may be answered.
FINE = {200, 400, 403, 404, 405, 408, 411, 413, 422, 431, 503}


class Studio:
    """A server of its own, as the command line starts it."""

    def __init__(self, place: Path) -> None:
        command = [sys.executable, "-m", "torchcaps", "studio", "--no-browser", "--host", "127.0.0.1", "--port", "0"]
        self.said = place / "stderr.txt"
        with self.said.open("w") as stream:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stream, text=True)
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 120)
        line = self.process.stdout.readline() if ready else ""
        if not line.startswith("studio: http://127.0.0.1:"):
            self.close()
            raise RuntimeError(f"the studio did not start: {line}{self.said.read_text()}")
        self.port = urlsplit(line.split()[1]).port or 0

    def line(self, seconds: float = 30) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=seconds)

    def peak(self) -> int:
        """Megabytes that it held at most so far."""
        rows = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(row.split()[1]) for row in rows if row.startswith("VmHWM")) // 1000

    def send(self, content: bytes, seconds: float = 60) -> int:
        """The status of the first answer to these bytes; 0 if the line was closed without one, -1 if nothing came."""
        try:
            with self.line(seconds) as line:
                with suppress(ConnectionError):  # refused while it was sent: the answer may still be there
                    line.sendall(content)
                return status(line.recv(64))
        except ConnectionError:
            return 0
        except TimeoutError:
            return -1

    def digit(self) -> list[float]:
        """An honest question: the activations of an empty picture."""
        told, until = b"", time.monotonic() + 60
        with self.line() as line:
            line.sendall(post("digit", ROOMS["digit"], "Connection: close\r\n"))
            while (part := line.recv(65_536)) and time.monotonic() < until:
                told += part
        return json.loads(told.split(b"\r\n\r\n", 1)[1])["activations"]

    def close(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def studio() -> Iterator[Studio]:
    with tempfile.TemporaryDirectory() as place:
        running = Studio(Path(place))
        try:
            yield running
        finally:
            running.close()


def status(answer: bytes) -> int:
    words = answer.split(b" ", 2)
    return int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit() else 0


def post(room: str, body: object, more: str = "", host: str = "localhost") -> bytes:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST /api/{room} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(text)}\r\n{more}\r\n".encode() + text


def get(path: str, more: str = "", host: str = "localhost") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode()


def long_body(draw: random.Random) -> bytes:
    """1.9 MB of JSON that takes much memory once it is parsed."""
    piece = draw.choice((b"[],", b"{},", b"0.5,", b'"ab",', b'{"a":0},', b"[0.5],", b"[[[[0]]]],"))
    start, end = b'{"network":"' + NETWORK.encode() + b'","pixels":[', b"0]}"
    return start + piece * ((LONG - len(start) - len(end)) // len(piece)) + end


def valid(draw: random.Random) -> bytes:
    room = draw.choice((*ROOMS, *PAGES))
    return post(room, ROOMS[room]) if room in ROOMS else get(room)


def wrong_types(draw: random.Random) -> bytes:
    room = draw.choice(list(ROOMS))
    return post(room, ROOMS[room] | {draw.choice([*ROOMS[room], "more"]): draw.choice(ODD)})


def broken_json(draw: random.Random) -> bytes:
    room = draw.choice(list(ROOMS))
    text = bytearray(json.dumps(ROOMS[room]).encode())
    for _ in range(draw.randint(1, 4)):
        text[draw.randrange(len(text))] = draw.randrange(256)
    return post(room, bytes(text[: draw.randint(0, len(text))]))


def deep_json(draw: random.Random) -> bytes:
    depth = draw.choice((50, 900, 5000, 60_000))
    opening, closing = draw.choice(((b"[", b"]"), (b'{"a":', b"}")))
    text = opening * depth + b"0" + closing * draw.choice((0, depth))
    return post(draw.choice(list(ROOMS)), draw.choice((text, b'{"network":"x","pixels":' + text + b"}")))


def foreign(draw: random.Random) -> bytes:
    host = draw.choice(("evil.example", "localhost.evil.example", "192.0.2.1", "", "[", "localhost\r\nHost: localhost"))
    more = draw.choice(("", "Origin: https://evil.example\r\n", "Origin: null\r\n"))
    if draw.random() < 0.5:
        host, more = "localhost", "Origin: https://evil.example\r\n"
    room = draw.choice(list(ROOMS))
    return draw.choice((post(room, ROOMS[room], more, host), get("/api/hello", more, host)))


def unknown(draw: random.Random) -> bytes:
    path = "/" + "".join(draw.choice("abc/.%2e?&=0") for _ in range(draw.randint(1, 60)))
    path = draw.choice((path, "/api/" + path, "/api/points?name=" + path, "/api/points?seed=" + "9" * 99, "/%00"))
    return get(path).replace(b"GET", draw.choice((b"GET", b"PUT", b"DELETE", b"HEAD", b"TRACE", b"X")), 1)


def pipelined(draw: random.Random) -> bytes:
    kinds = (valid, wrong_types, unknown)
    return b"".join(draw.choice(kinds)(draw) for _ in range(draw.randint(2, 12)))


def cut_off(draw: random.Random) -> bytes:
    whole = draw.choice((valid, pipelined))(draw)
    return whole[: draw.randrange(1, len(whole))]


def noise(draw: random.Random) -> bytes:
    heads = (
        b"",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /api/digit HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
    )
    return draw.choice(heads) + draw.randbytes(draw.randint(1, 20_000))


def oversized(draw: random.Random) -> bytes:
    size = draw.choice((2_000_001, 10**9, 10**30))
    return post("digit", b"").replace(b"Length: 0", b"Length: %d" % size) + b" " * draw.choice((0, 1000, 300_000))


def long_question(draw: random.Random) -> bytes:
    return post("digit", long_body(draw))


# What is sent, and in how many of a hundred requests.
KINDS: dict[Callable[[random.Random], bytes], int] = {
    valid: 22, wrong_types: 20, broken_json: 14, deep_json: 8, foreign: 10, unknown: 9, pipelined: 6, cut_off: 5,
    noise: 3, oversized: 2, long_question: 1,
}  # fmt: skip


def try_requests(running: Studio, requests: int, seed: int) -> list[Result]:
    """Mixed requests, eight at a time; a row for each kind."""
    draw = random.Random(seed)
    chosen = draw.choices(list(KINDS), list(KINDS.values()), k=requests)
    results = {kind: Result("server", kind.__name__.replace("_", " ")) for kind in KINDS if kind in chosen}

    def one(number: int) -> tuple[int, float]:
        begun, kind = time.perf_counter(), chosen[number]
        content = kind(random.Random(seed * 1_000_003 + number))
        if kind in (cut_off, noise):  # the other side waits for more: hang up soon
            return running.send(content, 0.2), time.perf_counter() - begun
        return running.send(content), time.perf_counter() - begun

    with ThreadPoolExecutor(8) as pool:
        for kind, (code, seconds) in zip(chosen, pool.map(one, range(requests)), strict=True):
            result = results[kind]
            result.seconds += seconds
            quiet = code == 0 or (code == -1 and kind in (cut_off, noise))
            if kind is valid and code != 200:
                result.fault(f"a valid question was answered with {code}")
            elif quiet:
                result.ended("closed" if code == 0 else "left by us")
            elif code in FINE:
                result.ended(str(code))
            else:
                result.fault(f"answered with {code}")
    return list(results.values())


def try_slow(running: Studio, lines: int, kind: str) -> Result:
    """Connections that send a little and then nothing, or take no answer; a visitor comes between them."""
    result = Result("server", f"slow connections: {kind}")
    body = post("digit", b" " * LONG)[:300]
    sent = {"headers": b"GET / HTTP/1.1\r\nHost: loc", "bodies": body, "readers": get(PAGES[3].replace("=3", "=200"))}
    begun, held = time.perf_counter(), []
    try:
        for _ in range(lines):
            line = socket.socket()
            line.settimeout(10)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            held.append(line)
            try:
                line.connect(("127.0.0.1", running.port))
                line.sendall(sent[kind])
            except OSError:
                result.ended("closed at once")
            else:
                result.ended("held")
        for _ in range(VISITS):
            asked = time.perf_counter()
            code = running.send(get("/"), 30)
            waited = time.perf_counter() - asked
            result.ended("visitor answered") if code == 200 else result.fault(f"a visitor got {code}, {waited:.1f} s")
    finally:
        for line in held:
            line.close()
    result.seconds = time.perf_counter() - begun
    return result


def try_burst(running: Studio, bodies: int, seed: int) -> Result:
    """Long bodies, all at once."""
    result = Result("server", f"{bodies} bodies of {LONG / 1e6:g} MB at once")
    begun = time.perf_counter()
    with ThreadPoolExecutor(bodies) as pool:
        contents = [post("digit", long_body(random.Random(seed + number))) for number in range(bodies)]
        for code in pool.map(lambda content: running.send(content, 120), contents):
            result.ended(str(code)) if code in (422, 503) else result.fault(f"answered with {code}")
    result.seconds = time.perf_counter() - begun
    return result


def run(requests: int, seed: int = 0, slow: int = SLOW, burst: int = BURST) -> list[Result]:
    """All of it against one server, which must then answer as it did at first, within its memory."""
    with studio() as running:
        whole = Result("server", f"after all that; memory below {MEMORY} MB")
        before, begun = running.digit(), time.perf_counter()
        results = try_requests(running, requests, seed)
        results += [try_slow(running, slow, kind) for kind in ("headers", "bodies", "readers")]
        results += [try_burst(running, burst, seed + number) for number in range(BURSTS)]
        same = running.digit() == before
        whole.ended("the same answer") if same else whole.fault("another answer to an honest question than at first")
        peak = running.peak()
        whole.ended("within memory") if peak < MEMORY else whole.fault(f"{peak} MB of memory at most")
        whole.outcomes["MB at most"] = peak
        said = running.said.read_text()
        whole.ended("nothing on standard error") if not said else whole.fault(f"on standard error: {said[-300:]}")
        whole.seconds = time.perf_counter() - begun
    return [*results, whole]
