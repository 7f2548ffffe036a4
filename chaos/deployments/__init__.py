"""The servers that the battery starts itself, without root: by name, each as a context manager."""

from collections.abc import Callable

from .deployment import Deployment
from .single import Files, Mongo, PostgreSQL, Redis

DEPLOYMENTS: dict[str, Callable[[], Deployment]] = {
    "redis": Redis,
    "postgres": PostgreSQL,
    "mongo": Mongo,
    "sqlite": Files,
}

__all__ = ["DEPLOYMENTS", "Deployment"]
