"""Which connection of redis-py leads to a server, and with which arguments: the same for threads and asyncio.

redis-py connects, speaks TLS, logs in and selects the database; then its socket is ours. Its retries are off: the
driver must see every try that was not answered.
"""

from __future__ import annotations

from typing import Any

from redis.exceptions import AuthenticationError, AuthorizationError, RedisError

from ...errors import StoreDenied, StoreError, StoreUnavailable
from .faults import fault
from .settings import RedisSettings, ServerAddress


def new_connection(
    connections: Any, settings: RedisSettings, address: ServerAddress, timeout: float, *, seed: bool
) -> Any:
    """A connection, not connected yet, of redis.connection or redis.asyncio.connection."""
    login = settings.sentinel_login if seed and settings.sentinel else settings.login
    tls = {name: value for name, value in settings.login.items() if name.startswith("ssl_")} if settings.tls else {}
    arguments = {name: value for name, value in login.items() if not name.startswith("ssl_")}
    arguments |= {"socket_timeout": timeout, "socket_connect_timeout": timeout, "protocol": 2, "driver_info": None}
    if not address.port:
        return connections.UnixDomainSocketConnection(path=address.host, **arguments)
    kind = connections.SSLConnection if settings.tls else connections.Connection
    return kind(host=address.host, port=address.port, **tls, **arguments)


def refused(address: ServerAddress, error: Exception) -> StoreError:
    """Why there is no connection: nothing was sent. Not raised."""
    if isinstance(error, AuthenticationError | AuthorizationError):
        return StoreDenied(f"{address} refuses the login: {error}")
    if isinstance(error, RedisError) and str(error).partition(" ")[0].isupper():
        return fault(error)
    return StoreUnavailable(f"{address} cannot be reached: {error}")
