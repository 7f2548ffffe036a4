"""The pages of the reference that come from the code: what is documented here is what the code declares."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Annotated, Any, get_args, get_origin

import click
import msgspec

from solely import errors, events
from solely.apps import APPS, find
from solely.cli.program import solely as program
from solely.integrations.idempotency import PROBLEMS
from solely.service.figures import Figure
from solely.service.mount import mount
from solely.service.openapi import ABOUT
from solely.service.problems import KINDS
from solely.service.routes import Bearer, Public, Route, Webhook
from solely.service.service import Service
from solely.service.settings import Settings, load


def pages() -> dict[str, str]:
    """The text of each page, by its path in the site."""
    service = Service(load(environ={}, flags={"url": "memory://", "data_url": "sqlite:///:memory:"}).settings)
    routes = mount(service)
    return {
        "reference/settings.md": _settings(service),
        "reference/commands.md": _commands(),
        "reference/routes.md": _routes(routes, service),
        "reference/metrics.md": _metrics(),
        "reference/events.md": _events(),
        "reference/errors.md": _errors(),
    }


def _page(title: str, about: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", about, *parts]) + "\n"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *(tuple(map(_cell, row)) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;") or "–"


def _code(text: object) -> str:
    return f"`{text}`"


def _summary(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0]


# -- settings


def _settings(service: Service) -> str:
    parts = [_table(("Setting", "Default", "About"), _fields(Settings, skip=("sections",)))]
    for name in APPS:
        kind = service.apps[name]
        shape: Any = type(kind).Settings  # type: ignore[attr-defined]
        parts += [
            f"## {name}",
            f"The section `[{name}]`, or `SOLELY_{name.upper()}_…` in the environment; see [its page](../{name}.md).",
        ]
        parts.append(_table(("Setting", "Default", "About"), _fields(shape)))
    about = (
        "Defaults, then a TOML file (`--config`), then `SOLELY_*` of the environment, then flags; the later wins. "
        "[The service](../service.md#settings) explains them, and `solely check-config` prints those in effect."
    )
    return _page("Settings", about, *parts)


def _fields(shape: type[msgspec.Struct], skip: tuple[str, ...] = ()) -> Iterator[tuple[str, str, str]]:
    comments = _comments(shape)
    for each in msgspec.structs.fields(shape):
        if each.name not in skip:
            about = _description(each.type) or comments.get(each.name, "")
            yield _code(each.encode_name), _default(each), about


def _default(field: Any) -> str:
    if field.default is not msgspec.NODEFAULT:
        return "none" if field.default in ("", None, ()) else _code(_plain(field.default))
    if field.default_factory is not msgspec.NODEFAULT:
        made = field.default_factory()
        return _code(_plain(made)) if isinstance(made, tuple | list | dict) and made else "none"
    return "required"


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return ", ".join(map(_plain, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_plain(each)}" for key, each in value.items())
    if isinstance(value, msgspec.Struct):
        return str(value).partition("(")[0]
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _description(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        return next((each.description or "" for each in get_args(kind)[1:] if isinstance(each, msgspec.Meta)), "")
    return ""


def _comments(shape: type) -> dict[str, str]:
    """The comment above each field or on its line, of this class and of those that it extends."""
    found: dict[str, str] = {}
    for each in reversed(shape.__mro__):
        if each.__module__.startswith("solely."):
            above = list[str]()
            for line in inspect.getsource(each).splitlines():
                if comment := re.fullmatch(r"    # (.+)", line):
                    above.append(comment[1])
                    continue
                if field := re.match(r"    (\w+): [^#]*(?:# (.+))?$", line):
                    found[field[1]] = field[2] or " ".join(above)
                above.clear()
    return found


# -- commands


def _commands() -> str:
    about = (
        "Every command and its options, as `--help` prints them. [The command line](../cli.md) explains them, and has "
        "the exit codes."
    )
    parts = [part for command in _walk(program, None, "solely") for part in command]
    return _page("Commands", about, *parts)


def _walk(command: click.Command, parent: click.Context | None, name: str) -> Iterator[list[str]]:
    context = click.Context(command, info_name=name, parent=parent)
    if isinstance(command, click.Group):
        if parent is not None:
            yield [f"## {context.command_path}", _help(command)]
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None and not found.hidden:
                yield from _walk(found, context, inner)
        return
    mark = "###" if parent is not None and parent.parent is not None else "##"
    usage = f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```"
    records = [each.get_help_record(context) for each in command.get_params(context)]
    rows = [(_code(record[0]), record[1]) for record in records if record and record[1] and "--help" not in record[0]]
    options = [_table(("Option", "About"), rows)] if rows else []
    yield [f"{mark} {context.command_path}", _help(command), usage, *options]


def _help(command: click.Command) -> str:
    """The text of `--help`: its paragraphs, and its examples as code."""
    parts = (command.help or command.short_help or "").replace("\f", "").split("\n\n")
    return "\n\n".join(_paragraph(inspect.cleandoc(part)) for part in parts if part.strip())


def _paragraph(text: str) -> str:
    if text.startswith("\b"):
        return f"```text\n{text.removeprefix(chr(8)).strip(chr(10))}\n```"
    return text.replace("<", "&lt;")


# -- routes


def _routes(routes: list[Route], service: Service) -> str:
    shown = [route for route in routes if not route.hidden]
    parts = []
    for tag in dict.fromkeys(route.noun for route in shown):
        app = service.apps.get(tag)
        parts += [f"## {tag}", app.about if app else ABOUT.get(tag, "")]
        rows = [
            (_code(f"{route.method} {route.shown_path}"), _needs(route), route.summary, route.again)
            for route in shown
            if route.noun == tag
        ]
        parts.append(_table(("Route", "Needs", "What it does", "Sent again"), rows))
    about = (
        "Every route of the service and its applications. A running service has the same at `/reference`, with the "
        "fields and an example of each, and at `/openapi.json`. [The JSON API](../api.md) explains how to call them."
    )
    return _page("Routes", about, *parts)


def _needs(route: Route) -> str:
    match route.auth:
        case Bearer(scope=scope):
            return scope.name.lower()
        case Webhook(how=how):
            return how
        case Public():
            return "nothing"
    raise AssertionError(route.auth)


# -- metrics, events, errors


def _metrics() -> str:
    found = {figure.name: figure for figure in _figures()}
    rows = [
        (
            _code(name if each.kind or each.bounds else f"{name}_total"),
            _kind(each),
            ", ".join(map(_code, each.labels)),
            each.help,
        )
        for name, each in sorted(found.items())
    ]
    about = "What `GET /metrics` reports, for Prometheus. Labels are bounded, and never contain a key."
    return _page("Metrics", about, _table(("Metric", "Kind", "Labels", "About"), rows))


def _figures() -> Iterator[Figure]:
    """Every figure that a module of Solely declares."""
    for name, module in list(sys.modules.items()):
        if name.startswith("solely."):
            for value in vars(module).values():
                yield from (each for each in (value if type(value) is tuple else (value,)) if isinstance(each, Figure))
    for name in APPS:
        yield from find(name).figures


def _kind(figure: Figure) -> str:
    return "gauge" if figure.kind else "histogram" if figure.bounds else "counter"


def _events() -> str:
    rows = [
        (_code(each.__name__), ", ".join(_code(name) for name in each.__dataclass_fields__), _summary(each))
        for each in _classes(events, events.Event)
        if each is not events.Event
    ]
    about = (
        "What hooks receive, and `GET /v1/events` sends: frozen dataclasses of `solely.events`. A client takes hooks "
        "as `hooks=[…]`; one without hooks builds no events."
    )
    return _page("Events", about, _table(("Event", "Fields", "What happened"), rows))


def _classes(module: ModuleType, base: type) -> list[Any]:
    """The classes of the module that extend this one, in the order of the module."""
    return [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, base)]


def _errors() -> str:
    tree = (errors.__doc__ or "").split("\n\n")[1]
    rows = [(_code(each.__name__), _summary(each)) for each in _classes(errors, errors.SolelyError)]
    problems = [(_code(each.name), str(each.status), each.title, each.advice) for each in (*KINDS, *PROBLEMS)]
    about = (
        "All errors of the library are subclasses of `SolelyError`. Each carries `key` where there is one and, where "
        "known, `holder` and `left` (seconds)."
    )
    return _page(
        "Errors",
        about,
        f"```text\n{inspect.cleandoc(tree)}\n```",
        _table(("Error", "Means"), rows),
        "## Problems of the service",
        "Errors over HTTP are problem documents (RFC 9457). `type` is `/policy#` and this name.",
        _table(("Problem", "Status", "Title", "What to do"), problems),
    )
