"""One blocking connection: made by redis-py, then its socket is ours."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import Any, Self

import hiredis
import redis.connection
from redis.exceptions import RedisError

from ...credentials import Login
from ...errors import StoreDenied
from .codec import LOAD, packed
from .connection_args import login_command, new_connection, refused
from .replies import lacks_script
from .settings import RedisSettings, ServerAddress


class RedisConnection:
    """Sends and receives; OSError if the connection ends or the time is over. For one thread at a time."""

    def __init__(
        self,
        settings: RedisSettings,
        address: ServerAddress,
        timeout: float,
        login: Login | None = None,
        *,
        seed: bool = False,
    ) -> None:
        self.address = address
        self.login = login
        new = new_connection(redis.connection, settings, address, timeout, login, seed=seed)
        try:
            new.connect()
        except (RedisError, OSError, ValueError) as error:  # ValueError: an invalid host name
            raise refused(address, error) from None
        self._socket: socket.socket = new._sock
        new._sock = None  # ours from now on: its object would shut it down
        self._reader = hiredis.Reader()
        self._buffer = bytearray(65_536)
        # Looked up once, since every call of a store needs all of them.
        self._sendall, self._receive = self._socket.sendall, self._socket.recv_into
        self._feed, self._next = self._reader.feed, self._reader.gets
        self.set_timeout(timeout)

    @classmethod
    def connect(cls, settings: RedisSettings, address: ServerAddress, timeout: float, *, seed: bool = False) -> Self:
        """A connection to this server, with the next login if it refuses the known one; else raises StoreDenied."""
        refusal: StoreDenied | None = None
        for login in settings.tries(seed=seed):
            try:
                return cls(settings, address, timeout, login, seed=seed)
            except StoreDenied as denied:
                refusal = denied
        raise refusal or StoreDenied(f"{address}: there is no login")

    def log_in(self, login: Login, settings: RedisSettings) -> bool:
        """Logs in again on this connection; False if the server refuses that, and then it must be dropped."""
        self.login = login
        return not isinstance(self.execute(*login_command(login, settings)), hiredis.ReplyError)

    def set_timeout(self, seconds: float) -> None:
        """How long to wait for the server from now on."""
        if type(self._socket) is not socket.socket:  # TLS keeps its own time
            self._socket.settimeout(seconds)
            return
        # The kernel keeps the time: saves the poll() that Python makes before every call on a socket with a timeout.
        self._socket.settimeout(None)
        span = struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, span)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, span)

    def send(self, payload: bytes) -> None:
        self._socket.sendall(payload)

    def receive(self) -> Any:
        """The next answer; an error of the server is returned, not raised."""
        reader = self._reader
        while (answer := reader.gets()) is False:
            size = self._socket.recv_into(self._buffer)
            if not size:
                raise ConnectionResetError("the server closed the connection")
            reader.feed(self._buffer, 0, size)  # type: ignore[arg-type]
        return answer

    def call(self, command: bytes) -> Any:
        """The answer to one command; a script that the server does not know is loaded first."""
        buffer = self._buffer
        self._sendall(command)
        self._feed(buffer, 0, self._receive(buffer))  # type: ignore[arg-type]
        answer = self._next()
        if answer is False:  # there is more to come, or nothing ever
            answer = self.receive()
        return answer if type(answer) is list or not lacks_script(answer) else self._load_and_repeat(command)

    def call_all(self, commands: list[bytes]) -> list[Any]:
        """The answers to several commands, sent at once."""
        self._socket.sendall(b"".join(commands))
        answers = [self.receive() for _ in commands]
        for place, answer in enumerate(answers):
            if lacks_script(answer):
                answers[place] = self._load_and_repeat(commands[place])
        return answers

    def execute(self, *command: Any) -> Any:
        return self.call(packed(*command))

    def _load_and_repeat(self, command: bytes) -> Any:
        self._socket.sendall(LOAD + command)
        self.receive()
        return self.receive()

    def shut(self) -> None:
        """Makes whoever waits on this connection see its end; that one closes it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the socket and sends nothing: a forked child may do it too."""
        self._socket.close()
