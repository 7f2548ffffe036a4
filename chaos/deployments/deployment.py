"""What a deployment offers to faults and rounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self
from urllib.parse import urlsplit

import solely
from solely.rules import local_clock
from tests.client.data_loss import lose_everything


class Deployment(ABC):
    """Servers of one store. Rounds use a namespace each, so that none sees the keys of another."""

    name: str
    store: str
    server: Any = None  # the one that is killed and paused; None if there is none

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    @abstractmethod
    def url(self, namespace: str) -> str:
        """How clients reach the store."""

    @property
    @abstractmethod
    def version(self) -> str:
        """Which server this is."""

    def kill(self) -> None:
        """SIGKILL of the server, and a restart on the same port and data."""
        self.server.kill()

    def start(self) -> None:
        self.server.start()

    def pause(self) -> None:
        self.server.pause()

    def resume(self) -> None:
        self.server.resume()

    def wipe(self, namespace: str) -> tuple[float, float]:
        """Loses all data of the namespace; returns the times between which that happened."""
        begin = local_clock()
        lose_everything(self.url(namespace))
        return begin, local_clock()

    def prepare(self, namespace: str) -> None:
        """Makes what the first client of a namespace makes: tables, indexes."""
        with solely.Client(self.url(namespace), timeout=60.0) as once:
            once.seen("prepared")

    @property
    def address(self) -> tuple[str, int]:
        """Where the server listens, for a proxy."""
        parts = urlsplit(self.url("x"))
        return str(parts.hostname), int(parts.port or 0)

    def proxied_url(self, namespace: str, host: str, port: int) -> str:
        """How clients reach the store through a proxy."""
        parts = urlsplit(self.url(namespace))
        login, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{login}{at}{host}:{port}").geturl()
