"""The names of the kit that need no other package: what applications offer to users of the library imports these."""

from __future__ import annotations

from ..audit import NOTHING
from ..events import Lost, Retried
from ..functions import called_by, finished, items_function, plain_function, work_function
from ..logs import get_logger, printable
from ..names import part_of, reserved
from ..resilience import RETRY, Backoff
from ..rules import MAX_TTL, duration, duration_text, seconds, ttl_seconds

__all__ = [
    "MAX_TTL",
    "NOTHING",
    "RETRY",
    "Backoff",
    "Lost",
    "Retried",
    "called_by",
    "duration",
    "duration_text",
    "finished",
    "get_logger",
    "items_function",
    "part_of",
    "plain_function",
    "printable",
    "reserved",
    "seconds",
    "ttl_seconds",
    "work_function",
]
