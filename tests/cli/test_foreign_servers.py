"""Whatever answers at the address of a service or store, a command says so in one line and fails: a proxy's login page,
another program's JSON, half a response, or no HTTP at all."""

from __future__ import annotations

import json
import shlex
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import pytest

import solely.http
from solely import __version__
from solely.cli.exits import Exit
from solely.cli.program import perform
from solely.cli.program import solely as program

HTML = b"<!doctype html><html><head><title>Sign in</title></head><body>\x1b[2J</body></html>"


def response(status: int, kind: str, body: bytes, *more: str, length: int | None = None) -> bytes:
    lines = [
        f"HTTP/1.1 {status} X",
        f"content-type: {kind}",
        f"content-length: {len(body) if length is None else length}",
    ]
    return "\r\n".join([*lines, *more, "connection: close", "", ""]).encode() + body


def as_json(body: bytes, status: int = 200) -> bytes:
    return response(status, "application/json", body)


ANSWERS = {
    "a login page": response(200, "text/html", HTML),
    "a page that was not found": response(404, "text/html", HTML),
    "a gateway's error page": response(502, "text/html", HTML),
    "a redirect to itself": response(302, "text/html", b"", "location: /"),
    "nothing": as_json(b""),
    "no content": b"HTTP/1.1 204 X\r\n\r\n",
    "half of the JSON": as_json(b'{"locks": ['),
    "half of the response": response(200, "application/json", b'{"locks": [', length=400),
    "a list": as_json(b"[]"),
    "null": as_json(b"null"),
    "a number": as_json(b"42"),
    "an object of another shape": as_json(b'{"alerts": 5, "locks": {}, "runs": "x", "entries": [{}], "next": 5}'),
    "deep JSON": as_json(b"[" * 100_000),
    "bytes": as_json(bytes(range(256))),
    "no gzip": response(200, "application/json", b"{}", "content-encoding: gzip"),
    "a problem of another shape": response(409, "application/problem+json", b'{"type": 5}'),
    "a refusal of another shape": response(403, "application/problem+json", b"[]"),
    "a stream": response(200, "text/event-stream", b"data: {not JSON\n\n"),
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a hang-up": b"",
}  # fmt: skip


class AnotherServer:
    """Answers every request alike, but those for the version with `version`, if it has one."""

    def __init__(self, answer: bytes, version: str = "") -> None:
        self._answer, self._version = answer, as_json(json.dumps({"version": version}).encode()) if version else b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                self._respond(connection)

    def _respond(self, connection: socket.socket) -> None:
        connection.settimeout(30)
        request = b""
        while b"\r\n\r\n" not in request:
            if not (more := connection.recv(1 << 16)):
                return
            request += more
        asks_version = request.startswith(b"GET /version")
        connection.sendall(self._version if asks_version and self._version else self._answer)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):  # the rest of the request: else the client is reset before it reads
            pass

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture(params=ANSWERS)
def answer(request: pytest.FixtureRequest) -> bytes:
    return ANSWERS[request.param]


@pytest.fixture
def another(answer: bytes) -> Iterator[AnotherServer]:
    server = AnotherServer(answer)
    yield server
    server.close()


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands, by the words with which they are called."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from _commands(inner, (*path, name))


def _calls(option: str) -> dict[str, tuple[list[str], list[str]]]:
    """By the name of each command that has this option: its words, and those of its first example."""
    calls = {}
    for path, command in _commands(program):
        if any(option in parameter.opts for parameter in command.params):
            name = " ".join(("solely", *path))
            (example, *_) = command.examples(name)  # type: ignore[attr-defined]
            calls[name] = [*path], shlex.split(example.partition(" < ")[0])[len(path) + 1 :]
    return calls


AT_A_SERVICE = _calls("--at")
# Of a store, one that reads a key, one that lists, one that writes, and one that looks at the service itself.
AT_A_STORE = {
    name: words
    for name, words in _calls("--url").items()
    if name in ("solely explain", "solely locks list", "solely limits hit", "solely doctor", "solely once")
}


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the module that the example of `solely triggers work` names."""
    (tmp_path / "my_tasks.py").write_text("from solely.apps.triggers.work import task\n\n@task('a')\ndef a(_): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SOLELY_TOKEN", raising=False)
    monkeypatch.setattr("signal.signal", lambda *_: None)


def failed(name: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends with an error, in one line of text."""
    code = perform(words)
    out, err = capsys.readouterr()
    assert code in (Exit.ERROR, Exit.DENIED, Exit.UNAVAILABLE), (name, code, out, err)
    (line, *remedy) = err.strip().split("\n")
    assert line.startswith("solely: "), (name, err)
    assert len(remedy) <= 1, (name, err)
    assert err.replace("\n", "").isprintable(), (name, err)
    assert out == "", name


@pytest.mark.usefixtures("tasks")
def test_no_answer_of_another_program_makes_a_command_of_a_service_crash(
    another: AnotherServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(AT_A_SERVICE) > 50
    for name, (path, words) in AT_A_SERVICE.items():
        failed(name, [*path, "--at", another.url, "--timeout", "20s", *words], capsys)


@pytest.mark.usefixtures("tasks")
def test_a_service_of_another_version_that_answers_otherwise_is_named(
    answer: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or it is a service whose other addresses lead to something else. What it answers is shown, if it has a form."""
    server = AnotherServer(answer, version="99.1")
    try:
        for name, (path, words) in AT_A_SERVICE.items():
            if name == "solely triggers work":  # asks again and again: the service may be back soon
                continue
            code = perform([*path, "--at", server.url, "--timeout", "20s", *words])
            out, err = capsys.readouterr()
            assert code in (Exit.ERROR, Exit.DENIED, Exit.UNAVAILABLE, Exit.OK), (name, code, out, err)
            assert err.count("\n") <= 3, (name, err)
            if "answers otherwise" in err:
                assert f"a service of version 99.1, which answers otherwise than this command of {__version__}" in err
    finally:
        server.close()


@pytest.mark.usefixtures("tasks")
def test_no_answer_of_another_program_makes_a_command_of_a_store_crash(
    another: AnotherServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(AT_A_STORE) == 5
    for name, (path, words) in AT_A_STORE.items():
        runs = ["true" if word.startswith("./") else word for word in words]
        code = perform([*path, "--url", another.url, "--timeout", "300ms", *runs])
        out, err = capsys.readouterr()
        assert code in (Exit.ERROR, Exit.DENIED, Exit.UNAVAILABLE), (name, code, out, err)
        assert "Traceback" not in err, (name, err)


def test_no_answer_of_another_program_is_another_error_than_one_of_ours(another: AnotherServer) -> None:
    """In Python: errors of the library, for the typed client and the store alike."""
    with solely.http.Client(another.url, timeout=20) as service:
        for call in (service.version, lambda: service.locks.acquire("a"), lambda: list(service.locks.list())):
            with pytest.raises(solely.StoreError):
                call()
        with pytest.raises(solely.StoreError):
            list(service.events())
    with solely.Client(another.url, timeout=0.3) as once, pytest.raises(solely.StoreError):
        once.try_lock("a")
