"""The options of a trigger: those of trigger.dev's client that are used here. All others are kept with the run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from .... import InvalidInput
from ....kit import DAY, MAX_TTL, Call, duration, seconds
from ..model import (
    DELAYED,
    MOST_METADATA,
    MOST_TAGS,
    QUEUED,
    Tag,
    TaskName,
    TaskRun,
    UserKey,
    digest_of,
    new_run_id,
    now,
    stored_key_of,
)
from ..settings import TriggersSettings

MOST_OPTIONS = 64 * 1024  # bytes, without tags and metadata: every list reads them
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")  # in JSON: an odd number of backslashes before it
_PACKED, _SUPERJSON = "application/json", "application/super+json"  # payload types of trigger.dev's client
Span = float | str  # seconds, or text such as 30s, 5m, 24h, 30d
ParentId = Annotated[str, msgspec.Meta(max_length=128, pattern=r"^[^\u0000]*\Z")]
Tags = Tag | Annotated[list[Tag], msgspec.Meta(max_length=MOST_TAGS)]


class TriggerOptions(msgspec.Struct, kw_only=True, rename="camel"):
    """The options that are used here."""

    idempotency_key: UserKey | None = None
    idempotency_key_ttl: Span | None = msgspec.field(default=None, name="idempotencyKeyTTL")
    tags: Tags | None = None
    metadata: Any = None
    resume_parent_on_completion: bool = False
    parent_run_id: ParentId | None = None
    delay: Span | None = None
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None
    free_key_on_failure: bool = False


class TaskTrigger(msgspec.Struct, frozen=True):
    """A trigger that was checked: the run that it makes unless its key has one, and whether its parent waits."""

    run: TaskRun
    waits: bool


def trigger_of(
    settings: TriggersSettings,
    environment: str,
    task: str,
    payload: msgspec.Raw,
    given: Mapping[str, Any],
    header_key: str = "",
    item: str = "",
) -> TaskTrigger:
    """The checked trigger; `item` names that of a batch, so that it gets the same id when it is sent again. Raises
    InvalidInput, which names the option, if one is invalid."""
    try:
        options, name = msgspec.convert(given, TriggerOptions), msgspec.convert(task, TaskName)
        user_key = msgspec.convert(_one_key(options.idempotency_key, header_key), UserKey | None)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"options: {error}") from None
    payload = _unpacked(payload, given)
    text, digest = _checked(payload)
    at, key = now(), None if user_key is None else stored_key_of(user_key)
    due = at if options.delay is None else _moment(options.delay, at)
    life = settings.key_ttl if options.idempotency_key_ttl is None else _span(options.idempotency_key_ttl)
    run = TaskRun(
        id=new_run_id(environment, name, key, item),
        environment=environment,
        task=name,
        idempotency_key=key,
        key_expires_at=None if key is None else at + life,
        payload=text,
        payload_digest=digest,
        tags=tags_of(options.tags),
        metadata=metadata_of(options.metadata),
        options=_kept(given),
        state=DELAYED if due > at else QUEUED,
        created_at=at,
        updated_at=at,
        available_at=due,
        max_attempts=options.max_attempts or settings.max_attempts,
        parent_id=options.parent_run_id,
        frees_key=int(options.free_key_on_failure),
    )
    return TaskTrigger(run, options.resume_parent_on_completion)


def _kept(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are kept with the run; InvalidInput if they are too large."""
    kept = {each: value for each, value in given.items() if each not in ("tags", "metadata")}
    text = msgspec.json.encode(kept)
    if _NUL.search(text):
        raise InvalidInput("options contain the character NUL, which the database of runs cannot search")
    if len(text) > MOST_OPTIONS:
        raise InvalidInput(f"options have more than {MOST_OPTIONS} bytes; put what is large into the payload")
    return kept


def _checked(payload: msgspec.Raw) -> tuple[str, str]:
    """The payload as it is stored, and its digest. InvalidInput if it cannot be read again: a number that no float or
    integer of 64 bits has, a text that is not UTF-8, or JSON that is nested too deep."""
    try:
        return bytes(payload).decode(), digest_of(msgspec.json.decode(payload))
    except (ValueError, RecursionError) as error:  # of which UnicodeDecodeError and msgspec.DecodeError are some
        raise InvalidInput(f"payload: {_why(error)}; send such a value as a text") from None


def _why(error: Exception) -> str:
    return "it is nested too deep" if isinstance(error, RecursionError) else str(error)


def _unpacked(payload: msgspec.Raw, given: Mapping[str, Any]) -> msgspec.Raw:
    """The payload; that of trigger.dev's client is the text of it, in a string: JSON, or SuperJSON, which has the JSON
    in its field `json`."""
    kind = given.get("payloadType")
    if kind not in (_PACKED, _SUPERJSON) or not bytes(payload).lstrip().startswith(b'"'):
        return payload
    try:
        text = msgspec.json.decode(payload, type=str)
        if kind == _SUPERJSON:
            return msgspec.json.decode(text, type=_SuperJson).json
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return payload
    except RecursionError as error:
        raise InvalidInput(f"payload: {_why(error)}") from None
    return msgspec.Raw(text.encode())


class _SuperJson(msgspec.Struct):
    """What SuperJSON makes of a value. Its `meta` says which texts were dates and the like."""

    json: msgspec.Raw = msgspec.Raw(b"null")


def header_key(header: str) -> str:
    """The key of the header Idempotency-Key, which may be in quotes, as RFC 8941 writes a string. InvalidInput if it
    is too long."""
    quoted = len(header) > 1 and header[0] == header[-1] == '"'
    key = re.sub(r"\\(.)", r"\1", header[1:-1]) if quoted else header
    try:
        return msgspec.convert(key, UserKey) if key else ""
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the header Idempotency-Key: {error}") from None


def request_key(call: Call[Any, Any]) -> str:
    """What names this request and its retries by trigger.dev's client; "" if it is another client's."""
    return call.header("x-trigger-request-idempotency-key")


def _one_key(option: str | None, header: str) -> str | None:
    header = header_key(header)
    if option and header and option != header:
        raise InvalidInput(
            f"the header Idempotency-Key ({header!r:.80}) and options.idempotencyKey ({option!r:.80}) differ; give one"
        )
    return option or header or None


def tags_of(given: str | list[str] | None) -> list[str]:
    """The tags as a list, each once."""
    listed = [] if given is None else [given] if isinstance(given, str) else given
    return list(dict.fromkeys(listed))


def metadata_of(given: Any) -> dict[str, Any]:
    """The metadata: an object, or the JSON text of one, as trigger.dev's client sends it."""
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidInput(f"metadata is not JSON: {_why(error)}") from None
    if not isinstance(given or {}, dict):
        raise InvalidInput(f"metadata must be an object, not {type(given).__name__}")
    if len(msgspec.json.encode(given)) > MOST_METADATA:
        raise InvalidInput(f"metadata has more than {MOST_METADATA} bytes; put it into the payload")
    return dict(given or {})


def _span(given: Span) -> float:
    return seconds("idempotencyKeyTTL", duration(given) if isinstance(given, str) else given, least=1.0, most=MAX_TTL)


def _moment(given: Span, at: float) -> float:
    """When a delayed run is due: after so many seconds, after a span such as 1h30m, or at an ISO time; now if that is
    over."""
    if isinstance(given, str) and "T" in given:
        try:
            due = datetime.fromisoformat(given)
            moment = (due if due.tzinfo else due.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            raise InvalidInput(f"delay={given!r:.80} is neither a duration nor an ISO time") from None
        if moment > at + MAX_TTL:
            raise InvalidInput(f"delay={given!r:.80} is more than {MAX_TTL / DAY:g} days from now")
        return max(at, moment)
    return at + seconds("delay", duration(given) if isinstance(given, str) else given, least=0.0, most=MAX_TTL)
