"""`solely serve`: runs the service, on one worker or on several that share a socket, until it is told to stop."""

from __future__ import annotations

import asyncio
import math
import os
import resource
import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import msgspec
import structlog
import uvicorn
from uvicorn.supervisors import Multiprocess

from ..errors import InvalidInput
from . import logs
from .app import App
from .demo import demo
from .mounted import mount
from .protocol import BoundedProtocol
from .service import Service
from .settings import Settings, verify, without_password

log = structlog.get_logger("solely.serve")

ORPHANED = 1.0  # seconds between looks whether the parent is still there: its port is free again that soon
BACKLOG = 1024  # connections that wait to be accepted: a burst, while the workers are busy for a moment
WORKER_PATIENCE = 30  # seconds for a worker to answer its parent, who then replaces it: it may start on a busy machine
FILES = 65_536  # open files, where so many are allowed: more than any usual number of connections
OWN_FILES = 256  # open files beside the connections: of the store, the database, publishers, the log, the event loop
LEAST_CONNECTIONS = 10  # as the settings have it: a service with fewer would refuse its own users


def serve(settings: Settings, announce: Callable[[str], object] = print) -> int:
    """Runs the service until SIGTERM or SIGINT, and answers the exit code; a SolelyError if it cannot begin.

    `announce` is told where it can be reached as soon as connections are taken there.
    """
    verify(settings)
    logs.configure(settings)
    with ExitStack() as stack:
        listening = stack.enter_context(_bound(settings))
        if not settings.session_secret:  # the workers must know each other's sessions
            settings = msgspec.structs.replace(settings, session_secret=secrets.token_hex(32))
        settings = _with_files(settings)
        if settings.workers > 1:
            asyncio.run(_rehearse(settings))
        stack.enter_context(_ending_well())
        announce(f"Solely is at {address(settings, listening)}  (store: {without_password(settings.store_url)})")
        shared = stack.enter_context(TemporaryDirectory(prefix="solely-")) if settings.workers > 1 else ""
        how = config(settings, partial(build, settings, os.getpid(), shared), factory=True)
        try:
            if shared:
                Workers(how, [listening]).run()
            else:
                uvicorn.Server(how).run([listening])
        except SystemExit as failure:  # uvicorn's way to say that the app did not start
            return 1 if failure.code else 0
        return 0


class Workers(Multiprocess):
    """uvicorn's parent of the workers. One that ends while its parent waits for its answer is replaced at once: uvicorn
    alone would go on waiting for WORKER_PATIENCE, and meanwhile replace no other that ends."""

    def keep_subprocess_alive(self) -> None:
        """Replaces those that have ended, or do not answer."""
        for worker in self.processes:
            worker.child_conn.close()  # its end of the line, of which it has a copy: that alone must keep the line open
        super().keep_subprocess_alive()


async def _rehearse(settings: Settings) -> None:
    """Opens the service once and closes it: what keeps it from starting is raised here, where it ends the program;
    a worker would be replaced by another, again and again."""
    service = Service(settings)
    mount(service)
    await service.open()
    await service.close()


def build(settings: Settings, parent: int, shared: str) -> App:
    """The app of one worker. With `parent`, which started it, it ends; `shared` is the folder of all workers."""
    logs.configure(settings)
    service = Service(settings, shared=shared)
    service.companions.append(_heed_signals)
    if shared:
        service.companions += [partial(_watch_parent, parent), lambda service: service.metrics.keep_saving()]
    if settings.demo:
        service.companions.append(demo)
    return App(service, mount(service), replaced=bool(shared))


def address(settings: Settings, listening: socket.socket) -> str:
    """The address to open in a browser on this machine."""
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def config(settings: Settings, app: Any, *, factory: bool = False) -> uvicorn.Config:
    """How uvicorn is to run the app, or what makes it."""
    return uvicorn.Config(
        app,
        factory=factory,
        http=BoundedProtocol,
        loop="uvloop",
        ws="none",
        lifespan="on",
        workers=settings.workers,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=math.ceil(settings.idle_timeout),
        timeout_graceful_shutdown=math.ceil(settings.stop_timeout),
        timeout_worker_healthcheck=WORKER_PATIENCE,
    )


def _bound(settings: Settings) -> socket.socket:
    """A socket on which connections are taken; InvalidInput if the address cannot be had."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise InvalidInput(f"cannot bind {settings.host} port {settings.port}: {error}; choose another port") from None


def _with_files(settings: Settings) -> Settings:
    """Raises the limit of open files to what the connections need. Where it cannot be raised so far, the settings with
    as many connections as it allows, since a process without files cannot even use its store."""
    limit = _allow_files(max(FILES, settings.max_connections + OWN_FILES))
    room = limit - OWN_FILES
    if room >= settings.max_connections:
        return settings
    remedy = "raise the limit of open files (ulimit -n, LimitNOFILE of systemd)"
    if room < LEAST_CONNECTIONS:
        raise InvalidInput(
            f"{limit} open files are too few: the service needs {OWN_FILES + LEAST_CONNECTIONS}; {remedy}"
        )
    log.warning("fewer_connections", wanted=settings.max_connections, allowed=room, files=limit, remedy=remedy)
    fits = settings.max_unauthenticated < room
    return msgspec.structs.replace(
        settings, max_connections=room, max_unauthenticated=settings.max_unauthenticated if fits else 0
    )


def _allow_files(wanted: int) -> int:
    """How many files may be open, of those that are wanted; the limit is raised if it can be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


@contextmanager
def _ending_well() -> Iterator[None]:
    """uvicorn raises the signal that stopped it again when it is done; by then all is well, and we end with 0."""
    before = {each: signal.signal(each, lambda *_: None) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


# -- companions


async def _heed_signals(service: Service) -> None:
    """Stops granting at the moment of the signal; uvicorn, which is told too, then waits for what is under way."""
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        uvicorns: Any = signal.getsignal(each)

        def heed(number: int, frame: FrameType | None, uvicorns: Any = uvicorns) -> None:
            loop.call_soon_threadsafe(service.stop)
            if callable(uvicorns):
                uvicorns(number, frame)

        signal.signal(each, heed)


async def _watch_parent(parent: int, service: Service) -> None:
    """Ends this worker when its parent died without a word."""
    while os.getppid() == parent:  # noqa: ASYNC110 - nobody tells of a parent's death
        await asyncio.sleep(ORPHANED)
    log.warning("parent_gone", parent=parent)
    signal.raise_signal(signal.SIGTERM)
