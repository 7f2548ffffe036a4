"""Connections without HTTP: TCP, TLS and datagrams, to the addresses that the guard permits, with the time that each
phase takes. The caller bounds the time."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .certificates import PeerTls, peer_tls
from .checks import trusted, unverified
from .guard import AddressGuard
from .message import CallFailed, Timings
from .network import reason_of, watched, watching
from .settings import OutgoingSettings

MAX_DATAGRAM = 4096  # bytes of a reply: more than any UDP answer of a name server that was asked without EDNS


@dataclass(frozen=True, slots=True)
class Stream:
    """An open connection. `certificate_expires` is None without TLS, and if certificates are not verified."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    address: str
    timings: Timings
    certificate_expires: datetime | None
    tls: PeerTls | None = None


class GuardedConnector:
    """Connects to hosts and ports; `guard`, `guard_allow`, `ca_file` and `verify` of the settings apply. Names are
    resolved on the threads of `resolvers`, by default on those that all callers share."""

    def __init__(
        self, name: str, settings: OutgoingSettings | None = None, *, resolvers: Executor | None = None
    ) -> None:
        given = settings or OutgoingSettings()
        self._name = name
        self._guard = AddressGuard(name, given.guard_allow, check=given.guard, resolvers=resolvers)
        self._tls = trusted(f"{name}:", given.ca_file) if given.verify else unverified()

    @asynccontextmanager
    async def stream(self, host: str, port: int, *, tls: bool = False, server_name: str = "") -> AsyncIterator[Stream]:
        """A connection to the first of the host's addresses that answers, closed after the block; CallFailed if none
        does, if one of them is not permitted, or if the certificate is not valid for the host, or for `server_name`
        if that is given."""
        watch = watching()
        watch.enter("resolve")
        addresses = await self._guard.addresses(host, port)
        watch.address = addresses[0]
        watch.enter("connect")
        connected, watch.address = await self._connected(addresses, port)
        if tls:
            watch.enter("tls")
        reader, writer = await self._wrapped(connected, server_name or host, tls)
        watch.enter("transfer")
        peer = peer_tls(writer.get_extra_info("ssl_object")) if tls else None
        try:
            yield Stream(reader, writer, watch.address, watch.timings(), _expiry(writer) if tls else None, peer)
        finally:
            writer.transport.abort()  # nothing that was not read or written matters any more

    async def ask(self, host: str, port: int, question: bytes) -> tuple[bytes, Timings]:
        """The reply to a datagram, and its timings; CallFailed if the host refuses it or is not permitted."""
        watch, loop = watching(), asyncio.get_running_loop()
        watch.enter("resolve")
        address = watch.address = (await self._guard.addresses(host, port))[0]
        watch.enter("connect")
        with _open_socket(address, socket.SOCK_DGRAM) as endpoint:
            try:
                await loop.sock_connect(endpoint, (address, port))
                watch.enter("first_byte")
                await loop.sock_sendall(endpoint, question)
                reply = await loop.sock_recv(endpoint, MAX_DATAGRAM)
            except OSError as error:
                raise CallFailed(f"{self._name}: {host} did not answer: {reason_of(error)}") from None
        watch.enter("")
        return reply, watch.timings()

    async def ask_by_stream(self, host: str, port: int, question: bytes) -> tuple[bytes, Timings]:
        """The same over a connection, for replies of up to 64 KiB: each message follows its length."""
        async with self.stream(host, port) as stream:
            try:
                stream.writer.write(len(question).to_bytes(2) + question)
                reply = await stream.reader.readexactly(int.from_bytes(await stream.reader.readexactly(2)))
            except (OSError, asyncio.IncompleteReadError) as error:
                why = "it closed the connection" if isinstance(error, EOFError) else reason_of(error)
                raise CallFailed(f"{self._name}: {host} did not answer: {why}") from None
            watch = watched()
            watch.enter("")
            timings = watch.timings()
        return reply, timings._replace(first_byte=timings.transfer, transfer=0.0)

    async def _connected(self, addresses: list[str], port: int) -> tuple[socket.socket, str]:
        for address in addresses:
            opened = _open_socket(address, socket.SOCK_STREAM)
            try:
                await asyncio.get_running_loop().sock_connect(opened, (address, port))
                return opened, address
            except OSError as error:
                opened.close()
                failure = reason_of(error)
            except BaseException:
                opened.close()
                raise
        raise CallFailed(f"{self._name}: cannot connect to {addresses[-1]}: {failure}")

    async def _wrapped(
        self, connected: socket.socket, host: str, tls: bool
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        secure: dict[str, Any] = {"ssl": self._tls, "server_hostname": host.removesuffix(".")} if tls else {}
        try:
            return await asyncio.open_connection(sock=connected, **secure)
        except (OSError, ssl.CertificateError) as error:
            connected.close()
            raise CallFailed(f"{self._name}: no TLS connection to {host}: {reason_of(error)}") from None
        except BaseException:
            connected.close()
            raise


def _open_socket(address: str, kind: socket.SocketKind) -> socket.socket:
    opened = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    opened.setblocking(False)
    return opened


def _expiry(writer: asyncio.StreamWriter) -> datetime | None:
    certificate = writer.get_extra_info("peercert")
    if not certificate:
        return None
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), UTC)
