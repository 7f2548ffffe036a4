"""The guard against being sent to places that only we can reach: a host is resolved, what it resolves to is checked,
and the connection goes to the very address that was checked, so that a second answer of the resolver cannot differ."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from .failure import PublishFailed, said

Address = IPv4Address | IPv6Address


def is_public(address: Address) -> bool:
    """True if everybody could reach it: not loopback, private, shared, link-local, multicast, reserved, unspecified,
    nor one that has an IPv4 address inside, behind which any of these may hide."""
    if isinstance(address, IPv6Address) and (address.ipv4_mapped or address.sixtofour or address.teredo):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


class Guard:
    """Says to which addresses a host may be called: public ones, and those of the networks that are allowed."""

    def __init__(self, name: str, allow: Iterable[str] = ()) -> None:
        self._name = name
        self._allow = [ip_network(network) for network in allow]

    async def addresses(self, host: str, port: int) -> list[str]:
        """What the host resolves to, all of it checked; PublishFailed if it cannot be resolved, or if any of its
        addresses may not be called: an honest host has none of those."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise PublishFailed(f"{self._name}: {host} cannot be resolved: {said(str(error))}") from None
        addresses = list(dict.fromkeys(str(place[0]) for *_, place in found))
        for address in addresses:
            if not self._may(ip_address(address)):
                text = f"{self._name}: {host} is at {address}, which is no public address: not called"
                raise PublishFailed(f"{text}; if it is meant, name its network in guard_allow", permanent=True)
        return addresses

    def _may(self, address: Address) -> bool:
        return is_public(address) or any(address in network for network in self._allow)
