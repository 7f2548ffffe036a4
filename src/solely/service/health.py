"""Health checks, metrics and version, for machines. What is public reveals nothing."""

from __future__ import annotations

import time

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from .. import __version__
from .routes import PUBLIC, READ, Answer, Call, JsonResponse, Route
from .service import Service


class Alive(Answer):
    """The process responds."""

    status: str


class Ready(Answer):
    """`status` is ok or unready; each check is ok, warning or error."""

    status: str
    checks: dict[str, str]


class Version(Answer):
    """The running version, and its uptime in seconds."""

    version: str
    up: float


_started = time.monotonic()


def up() -> float:
    """Seconds since the service started."""
    return round(time.monotonic() - _started, 3)


async def healthz(call: Call[None, None]) -> Alive:
    """Alive."""
    return Alive(status="ok")


async def readyz(call: Call[None, None]) -> Ready | JsonResponse:
    """Ready to grant: the store is available, and the service is not stopping."""
    levels = await checks(call.service)
    if "error" in levels.values():
        return JsonResponse(503, Ready(status="unready", checks=levels), ((b"retry-after", b"1"),))
    return Ready(status="ok", checks=levels)


async def checks(service: Service) -> dict[str, str]:
    """The level of each check: ok, warning or error."""
    return {**await service.readiness.levels(), "granting": "error" if service.stopping.is_set() else "ok"}


async def metrics(call: Call[None, None]) -> Response:
    """Metrics in the text format of Prometheus."""
    return Response(await call.service.metrics.shared_text(), headers={"content-type": CONTENT_TYPE_LATEST})


async def version(call: Call[None, None]) -> Version:
    """The running version."""
    return Version(version=__version__, up=up())


ROUTES = [
    Route("GET", "/healthz", PUBLIC, healthz, tag="service"),
    Route("GET", "/readyz", PUBLIC, readyz, others={503: Ready}, tag="service"),
    Route("GET", "/-/healthy", PUBLIC, healthz, tag="service"),
    Route("GET", "/-/ready", PUBLIC, readyz, others={503: Ready}, tag="service"),
    Route("GET", "/metrics", READ, metrics, media="text/plain", tag="service"),
    Route("GET", "/version", READ, version, tag="service"),
]
