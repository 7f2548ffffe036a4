"""pymongo's own pool of connections, which here leaves the server known when one connection to it is lost.

pymongo takes a server for unknown after the loss of any connection. All threads of the client then wait for its
monitor, which looks only every 0.5 s: longer than a renewal of a short lease can wait. Whether the server is away is
better seen by connecting again, which the next try does at once, and by the monitor, whose own connection is not ours.
"""

from __future__ import annotations

from typing import Any

from pymongo.pool import Pool


def is_lost(connection: Any, error: BaseException) -> bool:
    """True if the error means that a connection of this age of the pool ended, not that an answer takes long."""
    ended = isinstance(error, OSError) and not isinstance(error, TimeoutError)
    return ended and connection.ready and not connection.pool_gen.stale(connection.generation, connection.service_id)


class SteadyPool(Pool):
    """A lost connection ends those that lie idle here, too, and has no other consequence.

    That makes the error one of a former age of the pool, which pymongo does not count against the server.
    """

    def connect(self, handler: Any = None) -> Any:
        connection = super().connect(handler)
        if not self.is_sdam:  # a monitor knows what to do
            connection._raise_connection_failure = self._clear_before(connection)  # type: ignore[method-assign]
        return connection

    def _clear_before(self, connection: Any) -> Any:
        fail = connection._raise_connection_failure

        def clear_and_fail(error: BaseException) -> None:
            if is_lost(connection, error):
                self.reset_without_pause()
            fail(error)

        return clear_and_fail
