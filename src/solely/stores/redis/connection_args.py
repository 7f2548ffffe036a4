"""Which connection of redis-py leads to a server, and with which arguments: the same for threads and asyncio.

redis-py connects, speaks TLS, logs in and selects the database; then its socket is ours. Its retries are off: the
driver must see every try that was not answered.
"""

from __future__ import annotations

from typing import Any

from redis.exceptions import AuthenticationError, AuthorizationError, RedisError

from ...credentials import Login
from ...errors import StoreDenied, StoreError, StoreUnavailable
from .faults import fault
from .settings import RedisSettings, ServerAddress


def new_connection(
    connections: Any,
    settings: RedisSettings,
    address: ServerAddress,
    timeout: float,
    given: Login | None,
    *,
    seed: bool,
) -> Any:
    """A connection, not connected yet, of redis.connection or redis.asyncio.connection."""
    login = settings.sentinel_login if seed and settings.sentinel else settings.login
    tls = {name: value for name, value in settings.login.items() if name.startswith("ssl_")} if settings.tls else {}
    arguments = {name: value for name, value in login.items() if not name.startswith("ssl_")}
    if given is not None:
        arguments |= {"username": given.username or arguments.get("username"), "password": given.password}
    arguments |= {"socket_timeout": timeout, "socket_connect_timeout": timeout, "protocol": 2, "driver_info": None}
    if not address.port:
        return connections.UnixDomainSocketConnection(path=address.host, **arguments)
    kind = connections.SSLConnection if settings.tls else connections.Connection
    return kind(host=address.host, port=address.port, **tls, **arguments)


def login_command(login: Login, settings: RedisSettings) -> tuple[str, ...]:
    """The command with which an open connection logs in again."""
    user = login.username or settings.login.get("username", "")
    return ("AUTH", user, login.password) if user else ("AUTH", login.password)


def refused(address: ServerAddress, error: Exception) -> StoreError:
    """Why there is no connection: nothing was sent. Not raised."""
    if isinstance(error, AuthenticationError | AuthorizationError):
        return StoreDenied(f"{address} refuses the login: {error}")
    if isinstance(error, RedisError) and str(error).partition(" ")[0].isupper():
        return fault(error)
    return StoreUnavailable(f"{address} cannot be reached: {error}")
