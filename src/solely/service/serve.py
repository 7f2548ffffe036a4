"""`solely serve`: runs the service, in one worker or in several that share a socket, until it is stopped."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import resource
import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from ipaddress import ip_address
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import msgspec
import structlog
import uvicorn

from ..errors import InvalidInput
from . import logs
from .app import AsgiApp
from .demo import demo
from .mount import mount
from .protocol import BoundedProtocol
from .service import Service
from .settings import Settings, verify, without_password
from .supervisor import Workers

log = structlog.get_logger("solely.serve")

PARENT_CHECK = 1.0  # seconds between checks that the parent still runs: its port is free again after that
BACKLOG = 1024  # connections that wait to be accepted: a burst, while the workers are busy
WORKER_PATIENCE = 30  # seconds until a worker that does not respond is replaced: it may start on a busy machine
FILES = 65_536  # open files, where so many are allowed: more than any usual number of connections
OWN_FILES = 256  # open files beside connections: of the store, the database, publishers, the log, the event loop
GARBAGE = 10_000  # objects, some MB at most, after which the youngest are collected; Python's default is 700
LEAST_CONNECTIONS = 10  # the least that the settings accept: with fewer, the service would refuse its own users


def serve(settings: Settings, announce: Callable[[str], object] = print) -> int:
    """Runs the service until SIGTERM or SIGINT, and returns the exit code; raises SolelyError if it cannot start.

    `announce` is called with the address as soon as the socket listens.
    """
    verify(settings)
    logs.configure(settings)
    with ExitStack() as stack:
        listening = stack.enter_context(_bound(settings))
        if not settings.session_secret:  # all workers must accept the same sessions
            settings = msgspec.structs.replace(settings, session_secret=secrets.token_hex(32))
        settings = _with_files(settings)
        if settings.workers > 1:
            asyncio.run(_check_start(settings))
        stack.enter_context(_ignoring_signals())
        announce(f"Solely is at {address(settings, listening)}  (store: {without_password(settings.store_url)})")
        shared = stack.enter_context(TemporaryDirectory(prefix="solely-")) if settings.workers > 1 else ""
        uvicorn_config = config(settings, partial(build, settings, os.getpid(), shared), factory=True)
        try:
            if shared:
                Workers(uvicorn_config, [listening]).run()
            else:
                uvicorn.Server(uvicorn_config).run([listening])
        except SystemExit as failure:  # raised by uvicorn if the app did not start
            return 1 if failure.code else 0
        return 0


async def _check_start(settings: Settings) -> None:
    """Opens and closes the service once: an error here ends the program, whereas a worker that cannot start would be
    replaced again and again."""
    service = Service(settings)
    mount(service)
    await service.open()
    await service.close()


def build(settings: Settings, parent: int, shared: str) -> AsgiApp:
    """The app of one worker. It exits when the process `parent` does; `shared` is the folder of all workers."""
    logs.configure(settings)
    service = Service(settings, shared=shared)
    service.background += [_stop_on_signals, _collect_rarely]
    if shared:
        service.background += [partial(_watch_parent, parent), lambda service: service.metrics.keep_saving()]
    if settings.demo:
        service.background.append(demo)
    return AsgiApp(service, mount(service), replaced=bool(shared))


def address(settings: Settings, listening: socket.socket) -> str:
    """The address to open in a browser on this machine."""
    host, port = listening.getsockname()[:2]
    if ip_address(host.partition("%")[0]).is_unspecified:  # without the zone of an IPv6 address
        host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def config(settings: Settings, app: Any, *, factory: bool = False) -> uvicorn.Config:
    """The configuration of uvicorn for the app, or for its factory."""
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
    """A listening socket; InvalidInput if it cannot be bound."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise InvalidInput(f"cannot bind {settings.host} port {settings.port}: {error}; choose another port") from None


def _with_files(settings: Settings) -> Settings:
    """Raises the limit of open files to what the connections need. If that is not possible, reduces max_connections,
    since a process that cannot open files cannot even use its store."""
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
    """Raises the limit of open files if possible; returns how many of those wanted are allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


@contextmanager
def _ignoring_signals() -> Iterator[None]:
    """uvicorn raises the signal that stopped it once more at its end. It is ignored, so that the exit code is 0."""
    before = {each: signal.signal(each, lambda *_: None) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


# -- background tasks


async def _stop_on_signals(service: Service) -> None:
    """Stops granting as soon as the signal arrives; uvicorn, which gets it too, then waits for requests in flight."""
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        previous: Any = signal.getsignal(each)

        def stop(number: int, frame: FrameType | None, previous: Any = previous) -> None:
            loop.call_soon_threadsafe(service.stop)
            if callable(previous):
                previous(number, frame)

        signal.signal(each, stop)


async def _collect_rarely(service: Service) -> None:
    """Exempts what lives as long as the worker from garbage collection, and collects less often: that saves 7 % of the
    CPU time of an acquire and release."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE)


async def _watch_parent(parent: int, service: Service) -> None:
    """Stops this worker when its parent has died."""
    while os.getppid() == parent:  # noqa: ASYNC110 - there is no notification of a parent's death
        await asyncio.sleep(PARENT_CHECK)
    log.warning("parent_gone", parent=parent)
    signal.raise_signal(signal.SIGTERM)
