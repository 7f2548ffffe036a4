"""The guard against being sent to places that only we can reach: a host is resolved, what it resolves to is checked,
and the connection goes to the very address that was checked, so that a second answer of the resolver cannot differ."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from .failure import PublishFailed, said

Address = IPv4Address | IPv6Address


# A list of our own: what `ipaddress` takes for public differs between versions of Python, and it lets some of these
# pass. Made from IANA's registries of special-purpose addresses, and from what clouds serve at public-looking ones.
_NOT_PUBLIC = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/8",  # this network: 0.0.0.0 reaches this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by customers of a provider
        "127.0.0.0/8",  # this host
        "168.63.129.16/32",  # Azure's platform, at every virtual machine
        "169.254.0.0/16",  # link-local: where clouds keep credentials
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; Oracle's cloud keeps credentials at 192.0.0.192
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: has an IPv4 address inside
        "3fff::/20",  # documentation
    )
)
# Global unicast. Around it are loopback, unique local, link-local, site-local, multicast, and most forms that have an
# IPv4 address inside: mapped, compatible, translated, NAT64.
_PUBLIC_IPV6 = ip_network("2000::/3")


def is_public(address: Address) -> bool:
    """True if everybody could reach it: none of the special addresses, nor one that has an IPv4 address inside, behind
    which any of these may hide."""
    if isinstance(address, IPv6Address) and address not in _PUBLIC_IPV6:
        return False
    return not any(address in network for network in _NOT_PUBLIC)


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
