"""The guard against requests to internal addresses (SSRF): a host is resolved, its addresses are checked, and the
connection goes to a checked address, so that a second DNS answer cannot differ."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from .message import AddressRefused, CallFailed
from .sanitizing import sanitized

Address = IPv4Address | IPv6Address

# Threads of their own, which start when they are needed: a name server that does not answer blocks a thread for some
# seconds, and must delay neither other calls nor what else the process does on threads. Who calls whatever hosts others
# name brings more of them, as the prober does.
_RESOLVERS = ThreadPoolExecutor(64, thread_name_prefix="solely-resolve")

# A list of our own: `ipaddress.is_global` differs between versions of Python, and misses some of these. From IANA's
# registries of special-purpose addresses, and the public-looking addresses at which clouds serve metadata.
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
# Global unicast. Outside of it are loopback, unique local, link-local, site-local, multicast, and most forms that embed
# an IPv4 address: mapped, compatible, translated, NAT64.
_PUBLIC_IPV6 = ip_network("2000::/3")


def is_public(address: Address) -> bool:
    """True if the address is public: neither special-purpose, nor IPv6 with an IPv4 address inside, which may be."""
    if isinstance(address, IPv6Address) and address not in _PUBLIC_IPV6:
        return False
    return not any(address in network for network in _NOT_PUBLIC)


def _is_ipv4(host: str) -> bool:
    """True if the host is written as an IPv4 address, which needs no resolver."""
    try:
        return str(IPv4Address(host)) == host
    except ValueError:
        return False


class AddressGuard:
    """Permits public addresses, and those of the allowed networks; without `check`, all addresses. Names are resolved
    on the threads of `resolvers`, by default on those that all share."""

    def __init__(
        self, name: str, allow: Iterable[str] = (), *, check: bool = True, resolvers: Executor | None = None
    ) -> None:
        self._name, self._resolvers = name, resolvers or _RESOLVERS
        self._allow = [ip_network(network) for network in allow]
        self._check = check

    async def addresses(self, host: str, port: int) -> list[str]:
        """All addresses of the host; CallFailed if it cannot be resolved, AddressRefused if any of its addresses is not
        permitted: an honest host has none of those."""
        addresses = [host] if _is_ipv4(host) else await self._resolved(host, port)
        for address in addresses:
            if self._check and not self._permits(ip_address(address)):
                text = f"{self._name}: {host} is at {address}, which is not a public address: not called"
                raise AddressRefused(f"{text}; if this is intended, add its network to guard_allow", permanent=True)
        return addresses

    async def _resolved(self, host: str, port: int) -> list[str]:
        ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._resolvers, ask)
        except (OSError, UnicodeError) as error:
            raise CallFailed(f"{self._name}: {host} cannot be resolved: {sanitized(str(error))}") from None
        return list(dict.fromkeys(str(place[0]) for *_, place in found))

    def _permits(self, address: Address) -> bool:
        return is_public(address) or any(address in network for network in self._allow)
