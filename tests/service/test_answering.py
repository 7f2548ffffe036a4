"""Answers as they go over the wire: a whole one in one step, and what must not go that way."""

import re
import time
from typing import BinaryIO

from tests.service.serving import Running

BODY = b'{"keys":["wired"]}'
ASKED = b"POST /v1/marks/seen HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
LENGTH = b"content-length: %d\r\n\r\n" % len(BODY)


def _answer(answers: BinaryIO) -> tuple[bytes, bytes]:
    """(head, body) of the next answer."""
    head = b"".join(iter(answers.readline, b"\r\n"))
    length = re.search(rb"content-length: (\d+)", head)
    return head, answers.read(int(length[1])) if length is not None else b""


def test_each_header_stands_in_an_answer_once(open_service: Running) -> None:
    with open_service.connect() as connection, connection.makefile("rb") as answers:
        connection.sendall(ASKED + LENGTH + BODY)
        head, body = _answer(answers)
    names = [line.partition(b":")[0] for line in head.split(b"\r\n")[1:-1]]
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert body == b'{"seen":[false]}'
    assert len(names) == len(set(names)) == 8
    assert {b"date", b"content-length", b"content-type", b"cache-control", b"x-content-type-options"} < set(names)


def test_the_date_is_that_of_the_answer(open_service: Running) -> None:
    dates: set[bytes] = set()
    with open_service.connect() as connection, connection.makefile("rb") as answers:
        ends = time.monotonic() + 10
        while len(dates) < 2 and time.monotonic() < ends:
            connection.sendall(ASKED + LENGTH + BODY)
            dates.add(re.findall(rb"\r\ndate: ([^\r]+)", _answer(answers)[0])[0])
            time.sleep(0.2)
    assert len(dates) == 2


def test_requests_that_follow_close_on_each_other_are_answered_in_their_order(open_service: Running) -> None:
    wrong = b"POST /v1/marks/nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n"
    with open_service.connect() as connection, connection.makefile("rb") as answers:
        connection.sendall((ASKED + LENGTH + BODY + wrong) * 5)
        statuses = [_answer(answers)[0][9:12] for _ in range(10)]
    assert statuses == [b"200", b"404"] * 5


def test_who_wants_the_connection_closed_is_told_so(open_service: Running) -> None:
    with open_service.connect() as connection, connection.makefile("rb") as answers:
        connection.sendall(ASKED + b"connection: close\r\n" + LENGTH + BODY)
        head, _ = _answer(answers)
        assert b"\r\nconnection: close\r\n" in head
        assert answers.read() == b""


def test_who_asks_for_the_head_gets_no_body(open_service: Running) -> None:
    with open_service.connect() as connection, connection.makefile("rb") as answers:
        connection.sendall(b"HEAD /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        first = b"".join(iter(answers.readline, b"\r\n"))
        second, body = _answer(answers)
    assert first.partition(b"\r\n")[0] == second.partition(b"\r\n")[0] == b"HTTP/1.1 200 OK"
    assert f"content-length: {len(body)}".encode() in first


def test_a_reader_that_is_behind_gets_every_answer(open_service: Running) -> None:
    with open_service.connect() as connection, connection.makefile("rb") as answers:
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 40)  # some megabytes
        connection.sendall((ASKED + LENGTH + BODY) * 20)
        time.sleep(0.5)
        statuses = [_answer(answers)[0][9:12] for _ in range(60)]
    assert statuses == [b"200"] * 60
