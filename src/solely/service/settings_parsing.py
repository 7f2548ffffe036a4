"""Parses settings: each value from any source as the type of its field. Errors name the source, the key and a remedy,
and never repeat a secret. The sections of applications are written `name.field` here."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from ..apps import APPS
from ..errors import InvalidInput
from ..folder import read_toml
from ..rules import duration

PREFIX = "SOLELY_"
ENVIRONMENT = "environment"
# Variables that are not settings: the path of the file, what `solely run` exports, what commands and tests read.
NOT_OURS = ("SOLELY_CONFIG", "SOLELY_FENCE", "SOLELY_TOKEN", "SOLELY_KEY", "SOLELY_OUTPUT")
NOT_OURS_PREFIXES = ("SOLELY_TEST_", "SOLELY_RUN_", "_SOLELY_")
# What a kubelet or a container engine adds for a Service or link whose name begins with `solely`: SOLELY_SERVICE_HOST,
# SOLELY_SERVICE_PORT_HTTP, SOLELY_PORT_80_TCP_ADDR, …; and SOLELY_PORT=tcp://10.0.0.1:80, though that names a setting.
_INJECTED = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_INJECTED_PORT = re.compile(r"\w+_PORT=(tcp|udp|sctp)://\S*")
PLACEHOLDER = "replace-me"  # in the values of deploy/ that everybody must replace: they are public

_LISTS = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)
_TABLES = (inspect.StructType, inspect.DictType)
_PLACED = re.compile(r"(.*) - at `\$(.*)`", re.DOTALL)  # how msgspec appends the place of an error

MASK = "…"
WHOLE = 4  # characters: a shorter secret is masked only in quotes, since it may be part of any word
PART = 8  # characters of a secret in a row: fewer may stand in a sentence by chance
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")


def read_file(file: str | Path | None) -> dict[str, Any]:
    """The contents of the TOML file; InvalidInput if it is unreadable."""
    if file is None:
        return {}
    try:
        return read_toml(file)
    except (OSError, ValueError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise InvalidInput(f"settings file {str(file)!r} cannot be read: {error}") from None


def read_environment(environ: Mapping[str, str], own: Collection[str]) -> Iterator[tuple[str, str]]:
    """Keys and values from the environment: SOLELY_ALERTS_KEEP is `alerts.keep`, unless the service has that field."""
    for name, value in environ.items():
        if name.startswith(PREFIX) and not _is_foreign(name, value):
            key = name.removeprefix(PREFIX).lower()
            app = next((app for app in APPS if key.startswith(f"{app}_")), "")
            yield f"{app}.{key[len(app) + 1 :]}" if app and key not in own else key, value


def _is_foreign(name: str, value: str) -> bool:
    """True if the variable has our prefix, but is no setting."""
    if name in NOT_OURS or name.startswith(NOT_OURS_PREFIXES):
        return True
    return bool(_INJECTED.fullmatch(name) or _INJECTED_PORT.fullmatch(f"{name}={value}"))


def by_section(source: str, part: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings by section: the service's own under "", those of each application under its name."""
    sections: dict[str, dict[str, Any]] = {"": {}}
    for key, value in part.items():
        app, dot, field = key.partition(".")
        if app not in APPS:
            sections[""][key] = value
        elif dot:
            sections.setdefault(app, {})[field] = value
        elif isinstance(value, Mapping):
            sections.setdefault(app, {}).update(value)
        else:
            raise InvalidInput(f"{source}: {app} is an application: write its settings into a section [{app}]")
    return sections


def checked(
    source: str, part: Mapping[str, Any], shape: type[msgspec.Struct], *, section: str, hidden: Collection[str]
) -> dict[str, Any]:
    """The values converted to the types of their fields. InvalidInput names key and source, and hides secrets."""
    types = {field.name: field.type for field in msgspec.structs.fields(shape) if section or field.name != "sections"}
    values = {}
    for name, value in part.items():
        key = f"{section}.{name}" if section else name
        if name not in types:
            spelt = f"{PREFIX}{key.upper().replace('.', '_')}" if source == ENVIRONMENT else key
            raise InvalidInput(f"{source}: unknown key {spelt!r}{_hint(name, [*types, *(() if section else APPS)])}")
        try:
            values[name] = _value(types[name], value)
        except (ValueError, msgspec.DecodeError, RecursionError) as error:
            place, why = _explained(error, value if name in hidden else None)
            shown = "" if name in hidden else f" {value!r}"
            raise InvalidInput(f"{source}: {key}{place}{shown}: {why}") from None
    return values


class _Misplaced(InvalidInput):
    """An error at a place inside a value. The text names known keys and types, and repeats no value, unless it is
    `quoting`."""

    def __init__(self, place: str, why: str, quoting: bool = False) -> None:
        super().__init__(why)
        self.place = place
        self.quoting = quoting


def _explained(error: Exception, secret: Any) -> tuple[str, str]:
    """The place of the error within the value, and its text, in which a secret is masked."""
    why, place = str(error), ""
    if isinstance(error, _Misplaced):
        place = error.place
        if not error.quoting:
            return place, why
    elif found := _PLACED.fullmatch(why):
        why, place = found[1], found[2]
    return place, why if secret is None else masked(why, secret)


@contextmanager
def _at(step: str) -> Iterator[None]:
    """Prefixes the place of errors raised in the block with one more step."""
    try:
        yield
    except _Misplaced as error:
        raise _Misplaced(step + error.place, str(error), error.quoting) from None
    except ValueError as error:
        raise _Misplaced(step, str(error), quoting=True) from None


def _hint(name: str, known: Collection[str]) -> str:
    meant = get_close_matches(name, known, 1)
    return f"; did you mean {meant[0]}?" if meant else f"; known are {', '.join(known)}"


def _value(wanted: Any, value: Any) -> Any:
    """The value converted to its type; text, as from the environment, is parsed."""
    kind = inspect.type_info(wanted)
    if isinstance(value, str):
        many = _alternative(kind, _LISTS)
        if many and isinstance(_plain(many.item_type), inspect.StrType) and not value.lstrip().startswith("["):
            value = [part for part in re.split(r"[,\s]+", value) if part]
        elif many or _alternative(kind, _TABLES):
            value = msgspec.json.decode(value)
    return msgspec.convert(_shaped(kind, value), wanted, strict=not isinstance(value, str))


def _plain(kind: inspect.Type) -> inspect.Type:
    """The type without its bounds."""
    return _plain(kind.type) if isinstance(kind, inspect.Metadata) else kind


def _alternative(kind: inspect.Type, kinds: tuple[type[Any], ...]) -> Any:
    """The first alternative of a union that is of these kinds, or None."""
    kind = _plain(kind)
    among = map(_plain, kind.types) if isinstance(kind, inspect.UnionType) else (kind,)
    return next((each for each in among if isinstance(each, kinds)), None)


def _shaped(kind: inspect.Type, value: Any) -> Any:
    """The value, with durations as text ("30s") converted to seconds wherever a float is wanted, at any depth."""
    if isinstance(value, str):
        wants_seconds = _alternative(kind, (inspect.FloatType,)) and not _alternative(kind, (inspect.StrType,))
        return duration(value) if wants_seconds else value
    if isinstance(value, list | tuple) and (many := _alternative(kind, _LISTS)):
        return [_step(f"[{index}]", many.item_type, each) for index, each in enumerate(value)]
    if isinstance(value, Mapping):
        return _table(kind, value)
    return value


def _step(step: str, kind: inspect.Type, value: Any) -> Any:
    with _at(step):
        return _shaped(kind, value)


def _table(kind: inspect.Type, value: Mapping[Any, Any]) -> Any:
    kind = _plain(kind)
    among = [_plain(each) for each in kind.types] if isinstance(kind, inspect.UnionType) else [kind]
    tags: dict[str, list[str]] = {}
    for each in among:
        if isinstance(each, inspect.DictType):
            return {name: _step("[...]", each.value_type, inner) for name, inner in value.items()}
        if isinstance(each, inspect.StructType):
            if not each.tag_field or value.get(each.tag_field) == each.tag:
                return _struct(each, value)
            tags.setdefault(each.tag_field, []).append(str(each.tag))
    for field, known in tags.items():
        wrong = f"there is no such {field}" if field in value else f"no {field} is given"
        raise _Misplaced(f".{field}", f"{wrong}; known are {', '.join(known)}")
    return value


def _struct(kind: inspect.StructType, value: Mapping[Any, Any]) -> dict[Any, Any]:
    fields = {field.encode_name: field.type for field in kind.fields}
    shaped = {}
    for name, inner in value.items():
        if name not in fields and name != kind.tag_field:
            raise _Misplaced("", f"unknown key {name!r}{_hint(str(name), fields)}")
        shaped[name] = _step(f".{name}", fields[name], inner) if name in fields else inner
    return shaped


# -- masking


def masked(message: str, secret: Any) -> str:
    """The message with every occurrence of the secret, of its parts, and of quotes from it masked. Quoted names of what
    is declared there are kept: they say where the error is, and may occur in a URL that is hidden."""
    bare = set(texts_of(secret))
    texts = sorted(bare | {repr(text)[1:-1] for text in bare}, key=len, reverse=True)
    names = sorted(map(re.escape, set(names_of(secret))))
    parts = re.split(rf"('(?:{'|'.join(names)})')", message) if names else [message]
    return "".join(part if number % 2 else _masked(part, texts) for number, part in enumerate(parts))


def _masked(message: str, texts: list[str]) -> str:
    for text in texts:
        if len(text) >= WHOLE:
            message = message.replace(text, MASK)
    message = _QUOTED.sub(lambda quote: _unquoted(quote, texts), message)
    return "".join(_without_parts(message, "\0".join(texts)))


def texts_of(secret: Any) -> Iterator[str]:
    """All texts in the value, at any depth, but for the names of things; also those in JSON, which environment
    variables use for lists and tables."""
    if isinstance(secret, msgspec.Struct):
        secret = [value for field, value in msgspec.structs.asdict(secret).items() if field != "name"]
    plain = secret if isinstance(secret, list | tuple) else msgspec.to_builtins(secret)
    if isinstance(plain, Mapping):
        plain = list(plain.values())
    if isinstance(plain, list | tuple):
        for each in plain:
            yield from texts_of(each)
    elif isinstance(plain, str) and plain:
        yield plain
        with suppress(msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            if not isinstance(inner := msgspec.json.decode(plain), str):
                yield from texts_of(inner)


def names_of(secret: Any) -> Iterator[str]:
    """The names in the value, at any depth: the keys of tables, and the `name` of each thing that has one."""
    if isinstance(secret, msgspec.Struct):
        fields = msgspec.structs.asdict(secret)
        if isinstance(name := fields.pop("name", None), str):
            yield name
        secret = list(fields.values())
    elif isinstance(secret, Mapping):
        yield from map(str, secret)
        secret = list(secret.values())
    if isinstance(secret, list | tuple):
        for each in secret:
            yield from names_of(each)


def _unquoted(quote: re.Match[str], texts: list[str]) -> str:
    inside = quote[1] or quote[2] or ""
    return f"'{MASK}'" if inside and any(inside in text for text in texts) else quote[0]


def _without_parts(message: str, texts: str) -> Iterator[str]:
    at = 0
    while at < len(message):
        end = at + PART
        if end > len(message) or message[at:end] not in texts:
            yield message[at]
            at += 1
            continue
        while end < len(message) and message[at : end + 1] in texts:
            end += 1
        yield MASK
        at = end
