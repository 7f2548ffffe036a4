"""Connections without HTTP: TCP, TLS and datagrams, to the addresses that the guard permits, with the time that each
phase takes. The caller bounds the time."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .checks import trusted, unverified
from .guard import AddressGuard
from .message import CallFailed, Timings
from .network import reason_of
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


class GuardedConnector:
    """Connects to hosts and ports; `guard`, `guard_allow`, `ca_file` and `verify` of the settings apply."""

    def __init__(self, name: str, settings: OutgoingSettings | None = None) -> None:
        given = settings or OutgoingSettings()
        self._name = name
        self._guard = AddressGuard(name, given.guard_allow, check=given.guard)
        self._tls = trusted(f"{name}:", given.ca_file) if given.verify else unverified()

    @asynccontextmanager
    async def stream(self, host: str, port: int, *, tls: bool = False) -> AsyncIterator[Stream]:
        """A connection to the first of the host's addresses that answers, closed after the block; CallFailed if none
        does, if one of them is not permitted, or if the certificate is not valid for the host."""
        began = time.perf_counter()
        addresses = await self._guard.addresses(host, port)
        resolved = time.perf_counter()
        connected, address = await self._connected(addresses, port)
        opened = time.perf_counter()
        reader, writer = await self._wrapped(connected, host, tls)
        secured = time.perf_counter()
        timings = Timings(resolved - began, opened - resolved, secured - opened if tls else 0.0)
        try:
            yield Stream(reader, writer, address, timings, _expiry(writer) if tls else None)
        finally:
            writer.transport.abort()  # nothing that was not read or written matters any more

    async def ask(self, host: str, port: int, question: bytes) -> tuple[bytes, Timings]:
        """The reply to a datagram, and its timings; CallFailed if the host refuses it or is not permitted."""
        began = time.perf_counter()
        address = (await self._guard.addresses(host, port))[0]
        resolved, loop = time.perf_counter(), asyncio.get_running_loop()
        with _open_socket(address, socket.SOCK_DGRAM) as endpoint:
            try:
                await loop.sock_connect(endpoint, (address, port))
                await loop.sock_sendall(endpoint, question)
                reply = await loop.sock_recv(endpoint, MAX_DATAGRAM)
            except OSError as error:
                raise CallFailed(f"{self._name}: {host} did not answer: {reason_of(error)}") from None
        return reply, Timings(resolve=resolved - began, first_byte=time.perf_counter() - resolved)

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
