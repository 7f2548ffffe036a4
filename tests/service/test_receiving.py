"""What arrives: however slowly, however much, it is refused in time, and nobody else is made to wait for it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.service.serving import Running, running, until

TIMEOUT = 1.5  # seconds that these tests give a request to arrive
HEAD = b"POST /v1/marks/seen HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def impatient() -> Iterator[Running]:
    with running(receive_timeout=TIMEOUT) as it:
        yield it


def read_all(connection: socket.socket) -> bytes:
    """What comes until the other side hangs up."""
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def read_until(connection: socket.socket, end: bytes) -> bytes:
    """What comes up to and with this."""
    seen = b""
    while end not in seen:
        piece = connection.recv(65536)
        assert piece, seen
        seen += piece
    return seen


def test_two_hundred_trickling_connections_keep_nobody_waiting(impatient: Running) -> None:
    with ExitStack() as stack:
        trickling = [stack.enter_context(impatient.connect()) for _ in range(200)]
        began = time.monotonic()
        for number, connection in enumerate(trickling):
            connection.sendall(HEAD if number % 2 else HEAD + b"content-length: 100\r\n\r\n{")
        for _ in range(5):
            for number, connection in enumerate(trickling):
                connection.sendall(b"x-a: b\r\n" if number % 2 else b" ")
            assert impatient.post("/v1/marks/seen", {"keys": ["a"]}).status_code == 200
        for connection in trickling:
            assert read_all(connection).startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - began < TIMEOUT + 30  # however long they would have trickled on
    assert impatient.post("/v1/marks/seen", {"keys": ["a"]}).status_code == 200


@pytest.mark.parametrize(
    "begun",
    [b"P", HEAD, HEAD + b"content-length: 9\r\n\r\n{", HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n"],
    ids=["line", "headers", "body", "chunks"],
)
def test_a_request_that_does_not_arrive_is_told_why(begun: bytes, impatient: Running) -> None:
    with impatient.connect() as connection:
        began = time.monotonic()
        connection.sendall(begun)
        answer = read_all(connection)
        assert TIMEOUT * 0.9 < time.monotonic() - began < TIMEOUT + 30
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"application/problem+json" in answer
    assert b"/policy#too-slow" in answer


def test_connections_that_say_nothing_are_closed(impatient: Running) -> None:
    with impatient.connect() as silent, impatient.connect() as blank:
        stop = threading.Event()

        def send_line_ends() -> None:
            while not stop.wait(0.2):
                try:
                    blank.sendall(b"\r\n")
                except OSError:
                    return

        sender = threading.Thread(target=send_line_ends)
        sender.start()
        try:
            assert read_all(silent) == b""
            assert b" 408 " in read_all(blank)
        finally:
            stop.set()
            sender.join()


def test_a_connection_that_is_used_again_is_watched_again(impatient: Running) -> None:
    whole = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with impatient.connect() as connection:
        for _ in range(3):
            connection.sendall(whole)
            assert b" 200 " in read_until(connection, b"}")
        time.sleep(TIMEOUT * 1.2)  # idle, which is allowed for longer
        connection.sendall(whole)
        assert b" 200 " in read_until(connection, b"}")
        connection.sendall(HEAD)
        assert b" 408 " in read_all(connection)


def test_an_answer_that_takes_longer_than_the_deadline_is_given(impatient: Running) -> None:
    token = impatient.post("/v1/locks/acquire", {"key": "slow"}).json()["token"]
    refused = impatient.post("/v1/locks/acquire", {"key": "slow", "wait": TIMEOUT * 1.5})
    assert refused.status_code == 409
    impatient.post("/v1/locks/release", {"token": token})


def test_requests_in_one_piece_are_answered_in_turn(impatient: Running) -> None:
    body = b'{"keys":["a"]}'
    one = HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
    with impatient.connect() as connection:
        connection.sendall(one * 3)
        seen = b""
        while seen.count(b'{"seen":[false]}') < 3:
            seen += read_until(connection, b"}")
        assert seen.count(b"HTTP/1.1 200 ") == 3


# -- too much


def test_ten_megabytes_are_refused_by_their_length(impatient: Running) -> None:
    large = b"x" * 10_000_000
    answer = impatient.http.post("/v1/marks", content=large, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["type"]) == (413, "/policy#too-large")
    assert "10000000" in answer.json()["detail"]


def test_ten_megabytes_are_refused_as_they_stream_in(impatient: Running) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(160):
            yield b"x" * 65_536

    answer = impatient.http.post("/v1/locks/acquire", content=pieces(), headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["type"]) == (413, "/policy#too-large")
    assert impatient.get("/healthz").status_code == 200


def test_the_cap_is_the_routes_own(impatient: Running) -> None:
    padding = b" " * 600_000
    small = impatient.http.post("/v1/locks/acquire", content=padding, headers={"content-type": "application/json"})
    assert small.status_code == 413
    body = b'{"keys":["a"]}' + padding
    large = impatient.http.post("/v1/marks/seen", content=body, headers={"content-type": "application/json"})
    assert large.status_code == 200


@pytest.mark.parametrize("size", [40_000, 1_000_000])
def test_large_headers_are_refused(size: int, impatient: Running) -> None:
    with impatient.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-a: " + b"a" * size + b"\r\n\r\n")
        head = read_until(connection, b"}")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert b"/policy#headers-too-large" in head


def test_many_small_headers_are_refused_too(impatient: Running) -> None:
    with impatient.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n" + b"x-a: b\r\n" * 20_000 + b"\r\n")
        assert read_until(connection, b"}").startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    "noise",
    [
        b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/9.9\r\n\r\n", b"\0\0\0\0\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
    ids=["TLS", "version", "zeros", "address", "long address"],
)  # fmt: skip
def test_noise_is_refused(noise: bytes, impatient: Running) -> None:
    with impatient.connect() as connection:
        connection.sendall(noise)
        response = read_all(connection)
    assert b" 4" in response[:20]
    assert b"content-type: application/problem+json" in response
    assert impatient.get("/healthz").status_code == 200


def test_a_caller_that_hangs_up_in_the_middle_leaves_nothing_behind(impatient: Running) -> None:
    with impatient.connect() as connection:
        connection.sendall(HEAD + b"content-length: 100\r\n\r\n{")
    until(lambda: impatient.get("/healthz").status_code == 200)


def test_two_services_of_one_process_read_nothing_of_each_other() -> None:
    """Each runs in a thread of its own, so that both are being read into at once."""

    def exchange(it: Running, letter: str) -> None:
        text = letter * 200_000
        for number in range(40):
            item = {"queue": "two", "id": f"{letter}{number}", "payload": text}
            assert it.post("/v1/queues/push", item).status_code == 200
            taken = it.post("/v1/queues/take", {"queue": "two", "ttl": 30}).json()["item"]
            assert set(taken["payload"]) == {letter}

    with running() as one, running() as other, ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(exchange, one, "a"), pool.submit(exchange, other, "b")]:
            done.result()
