"""Whom the studio answers, how much it reads, which files it gives away: over real sockets."""

import asyncio
import http.client
import json
import socket
import threading
from urllib.parse import urlsplit

import pytest

from torchcaps.apps.studio import rooms
from torchcaps.apps.studio.guards import BODY, HEADERS, answers_to
from torchcaps.apps.studio.server import STATIC

BLANK = {"network": "mnist-efficient", "pixels": [[0] * 28] * 28}


@pytest.fixture
def call(studio):
    """Ask the running studio, with any headers and a path as it is; status, headers and body come back."""

    def call_it(method, path, body=None, host=None, **headers):
        place = urlsplit(studio)
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host or place.netloc)
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        for name, value in ({"content_type": "application/json", "content_length": len(data)} | headers).items():
            connection.putheader(name.replace("_", "-"), str(value))
        connection.endheaders(data)
        answer = connection.getresponse()
        found = answer.status, answer.headers, answer.read()
        connection.close()
        return found

    return call_it


def sentence(found, status):
    assert found[0] == status, found
    return json.loads(found[2])["error"]


def test_the_page_and_its_files_are_served_with_their_types(call):
    status, headers, body = call("GET", "/")
    assert status == 200
    assert body == (STATIC / "index.html").read_bytes()
    kinds = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
    for path in STATIC.iterdir():
        status, headers, body = call("GET", f"/{path.name}")
        assert (status, body) == (200, path.read_bytes())
        assert headers["content-type"].split(";")[0] == kinds[path.suffix]


@pytest.mark.parametrize("path", ["/", "/api/hello", "/nothing", "/api/points?name=stars"])
def test_every_answer_carries_the_safety_headers(call, path):
    _, headers, _ = call("GET", path)
    for name, value in HEADERS.items():
        assert headers.get_all(name) == [value]
    policy = dict(rule.strip().split(" ", 1) for rule in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert not any("unsafe" in rule or "*" in rule or "http" in rule for rule in policy.values())
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/../server.py",
        "/static/../server.py",
        "/%2e%2e/server.py",
        "/..%2fserver.py",
        "/%2e%2e%2fserver.py",
        "/static/%2e%2e/server.py",
        "/..%5cserver.py",
        "/....//server.py",
        "/%252e%252e%252fserver.py",
        "//etc/passwd",
        "/%2fetc%2fpasswd",
        "/etc/passwd",
        "/..",
        "/%00",
        "/index.html%00.js",
        "/static/index.html/../../server.py",
        "/server.py",
    ],
)
def test_no_file_outside_is_served(call, path):
    found = call("GET", path)
    assert sentence(found, 404).startswith("studio: expected a page or question that it knows")
    assert b"import" not in found[2]


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8760",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil.example@127.0.0.1",
        "192.168.1.5",
        "0.0.0.0",
        "[::2]",
        "127.0.0.1:99999999",
        "[",
        "127.0.0.1, evil.example",
    ],
)
def test_a_foreign_host_is_refused(call, host):
    for method, path, body in (("GET", "/", None), ("GET", "/api/hello", None), ("POST", "/api/digit", BLANK)):
        said = sentence(call(method, path, body, host=host), 403)
        assert said == (f"studio: expected the name of this machine as Host, got {host!r}. Use the address it printed.")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:5", "[::1]:8760", "127.9.9.9"])
def test_names_of_this_machine_are_answered(call, host):
    assert call("GET", "/api/hello", host=host)[0] == 200


def test_elsewhere_numbers_and_the_given_name_are_answered_but_no_other_name():
    assert answers_to("192.168.1.5:8760", "0.0.0.0")
    assert answers_to("mine.example", "mine.example")
    assert answers_to(socket.gethostname(), "0.0.0.0")
    assert not answers_to("evil.example", "0.0.0.0")
    assert not answers_to("evil.example", "192.168.1.5")


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1", "http://localhost:1", "https://{own}", "file://"]
)
def test_a_foreign_origin_is_refused(call, studio, origin):
    origin = origin.format(own=urlsplit(studio).netloc)
    said = sentence(call("POST", "/api/digit", BLANK, Origin=origin), 403)
    assert said == f"studio: expected a question from its own page, got one from {origin!r}. Open the page."


def test_the_own_origin_is_answered(call, studio):
    assert call("POST", "/api/digit", BLANK, Origin=studio.rstrip("/"))[0] == 200


def test_no_other_site_is_allowed_by_a_preflight(call):
    found = call("OPTIONS", "/api/digit", Origin="https://evil.example", access_control_request_method="POST")
    assert found[0] == 403
    assert not any("access-control" in name.lower() for name in found[1])


def test_a_long_body_is_refused_before_it_is_read(call):
    said = sentence(call("POST", "/api/digit", b"", content_length=BODY + 1), 413)
    assert said == "studio: expected at most 2,000,000 bytes, got more. Send a smaller image."


@pytest.mark.parametrize(
    "bytes_sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /api/digit HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /api/digit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    ],
)
def test_the_server_outlives_broken_requests(studio, call, bytes_sent):
    place = urlsplit(studio)
    with socket.create_connection((place.hostname, place.port), timeout=20) as line:
        line.sendall(bytes_sent)
        line.shutdown(socket.SHUT_WR)
        said = line.recv(10_000)
    assert not said.startswith((b"HTTP/1.1 2", b"HTTP/1.1 5"))
    assert call("GET", "/api/hello")[0] == 200


def test_many_questions_at_once_are_all_answered(call):
    statuses = []
    threads = [
        threading.Thread(target=lambda: statuses.append(call("POST", "/api/digit", BLANK)[0])) for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert statuses == [200] * 12


@pytest.mark.parametrize(("gone", "status"), [(True, 499), (False, 200)])
def test_a_question_whose_asker_has_gone_is_not_worked_on(app, monkeypatch, gone, status):
    worked = []
    monkeypatch.setattr(rooms, "digit_room", lambda *given: worked.append(given) or {})
    body = {"type": "http.request", "body": json.dumps(BLANK).encode()}
    messages = [body] + [{"type": "http.disconnect"}] * gone
    sent = []

    async def receive():
        return messages.pop(0) if messages else await asyncio.Future()

    async def send(message):
        sent.append(message)

    size = str(len(body["body"])).encode()
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", size)]
    scope = {"type": "http", "method": "POST", "path": "/api/digit", "query_string": b"", "headers": headers}
    asyncio.run(app({**scope, "scheme": "http", "http_version": "1.1"}, receive, send))
    assert sent[0]["status"] == status
    assert len(worked) == (not gone)
