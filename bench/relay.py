"""Counts what a client and its server exchange: bytes in each direction, and round trips."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from tests.servers import listener

PIECE = 1 << 16


class Traffic(NamedTuple):
    """What has passed so far."""

    sent: int  # bytes from the client
    received: int  # bytes to the client
    round_trips: int  # times that the server answered after the client had sent something


class Relay:
    """Forwards connections to a server and counts what passes."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._sent = self._received = self._round_trips = 0
        self._listener = listener()
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def traffic(self) -> Traffic:
        with self._lock:
            return Traffic(self._sent, self._received, self._round_trips)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends the accept that waits
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._server) as server:
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            asked = threading.Event()
            back = threading.Thread(target=self._forward, args=(server, client, False, asked), daemon=True)
            back.start()
            self._forward(client, server, True, asked)
            back.join()

    def _forward(self, source: socket.socket, target: socket.socket, to_server: bool, asked: threading.Event) -> None:
        with suppress(OSError):
            while piece := source.recv(PIECE):
                with self._lock:
                    if to_server:
                        self._sent += len(piece)
                        asked.set()
                    else:
                        self._received += len(piece)
                        self._round_trips += asked.is_set()
                        asked.clear()
                target.sendall(piece)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@contextmanager
def relay(server: tuple[str, int]) -> Iterator[Relay]:
    """A relay to this server."""
    opened = Relay(server)
    try:
        yield opened
    finally:
        opened.close()
