"""How a fault proxy is put before a store, and how requests on the wire are told apart, whatever the protocol.

All three protocols carry keys and infos as they are, so a request is known by the bytes of its key; heartbeats, hints,
logins and statements that are only being prepared name no key. Of all ops, only an Acquire carries its holder.
"""

from urllib.parse import urlsplit

from solely.testing.proxy import FaultProxy, Where

_HOLDER = b"host"


def before(url: str) -> FaultProxy:
    """A proxy before the server that the URL names."""
    server = urlsplit(url)
    assert server.hostname is not None
    assert server.port is not None
    return FaultProxy(server.hostname, server.port)


def through(proxy: FaultProxy, url: str) -> str:
    """The URL of the same store, through the proxy.

    A replica set tells its clients where its members are, which would lead them past the proxy: so this one is told
    to stay where it is.
    """
    direct = "&directConnection=true" if url.startswith("mongodb://") else ""
    return proxy.url(url) + direct


def acquires(key: str) -> Where:
    """True for chunks in which somebody asks for this lock."""
    return lambda data: f"lock/{key}".encode() in data and _HOLDER in data


def others(key: str) -> Where:
    """True for chunks about this lock that ask for something else: a release, a renewal."""
    return lambda data: f"lock/{key}".encode() in data and _HOLDER not in data


def about(key: str) -> Where:
    """True for chunks in which this stored key occurs."""
    return lambda data: key.encode() in data
