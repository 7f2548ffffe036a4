"""Logs: the service's own and those of libraries, as one JSON object or one console line each, without secrets."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

from ..logs import indented_traceback, printable
from .settings import Settings

_SECRET = re.compile(r"token|secret|password|authorization|cookie|owner", re.IGNORECASE)
_IN_TEXT = re.compile(r"(?i)(bearer\s+|://[^/\s:@]*:)[^\s@\"']+")
_NAMED = re.compile(r"([a-z][a-z_]*): (.+)", re.DOTALL)  # a record of the library: its name, and a sentence
_REVEALING = ("httpcore2", "httpx2")  # libraries whose lines show URLs and headers of other systems, secrets included
_KNOWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


def configure(settings: Settings) -> None:
    """Has all loggers of this process write to stderr, as the settings say."""
    as_json = settings.log_format == "json" or (settings.log_format == "auto" and not sys.stderr.isatty())
    shared: list[Any] = [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        _extra,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        without_secrets,
    ]
    last: list[Any] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if as_json
        else [one_line, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_print_traceback)]
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    logging.basicConfig(handlers=[handler], level=settings.log_level.upper(), force=True)
    for library in _REVEALING:
        logging.getLogger(library).setLevel(max(logging.WARNING, logging.getLogger().level))


def _print_traceback(stream: TextIO, error: Any) -> None:
    """Plain: a rich one would show local variables, and with them what callers sent."""
    stream.write("\n" + indented_traceback(error[1]))


def _extra(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Adds the `extra` of a record of the library, and separates the name with which its text begins."""
    record = event.get("_record")
    if record is not None:
        facts = {name: value for name, value in vars(record).items() if name not in _KNOWN}
        event.update(facts)
        ours = record.name == "solely" or (facts and record.name.startswith("solely."))
        if ours and (named := _NAMED.fullmatch(event["event"])):
            event["event"], event["message"] = named.groups()
    return event


def one_line(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escapes line breaks and control characters, since texts come from callers."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[name] = printable(value)
    return event


def without_secrets(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replaces secrets, which are recognized by the name of their field or by their form within a text."""
    for name, value in event.items():
        if name.startswith("_"):
            continue
        if _SECRET.search(name):
            event[name] = "…"
        elif isinstance(value, str) and ("://" in value or "earer" in value):
            event[name] = _IN_TEXT.sub(r"\1…", value)
    return event
