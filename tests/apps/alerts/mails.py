"""A mail server on loopback, on threads of its own, that speaks as much SMTP as is needed, and refuses on demand."""

from __future__ import annotations

import base64
import contextlib
import email
import email.policy
import socket
import ssl
import threading
from collections.abc import Iterator
from email.message import EmailMessage
from typing import Any

END = 10.0  # seconds for its threads to end: they take some milliseconds


class Mails:
    """The server. `refusals` maps the beginning of a command to what is answered to it, once per entry of its list."""

    def __init__(self, tls: ssl.SSLContext | None, at_once: bool) -> None:
        self.received: list[tuple[list[str], EmailMessage]] = []
        self.raw: list[bytes] = []  # the same mails as they came over the wire, without the dots of the protocol
        self.passwords: list[str] = []
        self.refusals: dict[str, list[str]] = {}
        self.slow = False  # says its first line a letter at a time
        self.left = threading.Semaphore(0)  # conversations that are over
        self._tls, self._at_once = tls, at_once
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def end(self) -> None:
        self._ending.set()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(END)
            assert not thread.is_alive()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._ending.is_set():
                connection, _ = self._listening.accept()
                connection.settimeout(5.0)
                self._threads.append(threading.Thread(target=self._guarded, args=(connection,)))
                self._threads[-1].start()

    def _guarded(self, connection: Any) -> None:
        try:
            with contextlib.suppress(OSError, ValueError):
                self._converse(self._secured(connection) if self._at_once else connection)
        finally:
            connection.close()
            self.left.release()

    def _secured(self, connection: Any) -> Any:
        assert self._tls is not None
        return self._tls.wrap_socket(connection, server_side=True)

    def _converse(self, connection: Any) -> None:
        if self.slow:
            while not self._ending.wait(0.02):
                connection.sendall(b"2")
            return
        connection.sendall(b"220 mails.example\r\n")
        file = connection.makefile("rb")
        recipients: list[str] = []
        while line := file.readline().decode().strip():
            answer = self._refusal(line) or self._answer(line, recipients, isinstance(connection, ssl.SSLSocket))
            connection.sendall(f"{answer}\r\n".encode())
            if line.upper() == "STARTTLS" and answer.startswith("220"):
                file.close()
                connection = self._secured(connection)
                file = connection.makefile("rb")
            elif answer.startswith("354"):
                self.raw.append(_read(file))
                self.received.append((recipients, _parsed(self.raw[-1])))
                connection.sendall(f"{self._refusal('.') or '250 taken'}\r\n".encode())
        file.close()
        connection.close()

    def _refusal(self, line: str) -> str:
        for beginning, answers in self.refusals.items():
            if answers and line.upper().startswith(beginning.upper()):
                return answers.pop(0)
        return ""

    def _answer(self, line: str, recipients: list[str], secure: bool) -> str:
        verb = line.upper().split(":")[0].split(" ")[0]
        if verb == "EHLO":
            offered = "AUTH PLAIN" if secure else ("STARTTLS" if self._tls else "HELP")
            return f"250-mails.example\r\n250 {offered}"
        if verb == "AUTH":
            self.passwords.append(base64.b64decode(line.split(" ")[2]).decode())
            return "235 welcome"
        if verb == "RCPT":
            recipients.append(line.partition("<")[2].partition(">")[0])
        return {"DATA": "354 go on", "STARTTLS": "220 go on"}.get(verb, "250 fine")


def _read(file: Any) -> bytes:
    lines = []
    while (line := file.readline()) not in (b".\r\n", b""):
        lines.append(line.removeprefix(b"."))
    return b"".join(lines)


def _parsed(mail: bytes) -> EmailMessage:
    read = email.message_from_bytes(mail, policy=email.policy.SMTP)
    assert isinstance(read, EmailMessage)
    return read


@contextlib.contextmanager
def mails(tls: ssl.SSLContext | None = None, at_once: bool = False) -> Iterator[Mails]:
    """A mail server; with `tls` it offers STARTTLS, or speaks TLS at once."""
    server = Mails(tls, at_once)
    try:
        yield server
    finally:
        server.end()
