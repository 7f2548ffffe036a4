"""The plain data of the task-trigger API: runs, their ids and keys, and changes of a run."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, get_args

import msgspec

from ... import InvalidInput
from ...kit import Row, from_row, part_of, reserved

own = partial(reserved, "triggers")  # a name (of a key, a queue, …) that only this application may write

State = Literal["QUEUED", "DELAYED", "EXECUTING", "WAITING", "COMPLETED", "FAILED", "CANCELED"]
QUEUED: State = "QUEUED"
DELAYED: State = "DELAYED"
EXECUTING: State = "EXECUTING"
WAITING: State = "WAITING"  # for a child run; nobody has it leased
COMPLETED: State = "COMPLETED"
FAILED: State = "FAILED"
CANCELED: State = "CANCELED"
ENDED = (COMPLETED, FAILED, CANCELED)
_STATES = get_args(State)

MOST_METADATA = 256 * 1024  # bytes of a run's metadata, as trigger.dev has it
MOST_OPERATIONS = 1_000  # on metadata in one request: trigger.dev's client sends those of a second together
_MOST_COMPARED = 1_000_000  # values of lists that the operations of one request may look at: some 30 ms
MOST_TAGS = 10  # of one run, as trigger.dev has it
Tag = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"^[^\u0000]*\Z")]
TaskName = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"^[^\u0000/]*\Z")]
UserKey = Annotated[str, msgspec.Meta(min_length=1, max_length=2048, pattern=r"^[^\u0000]*\Z")]
RUN_ID = re.compile(r"^run_[a-z2-7]{39}\Z")
RunId = Annotated[str, msgspec.Meta(pattern=RUN_ID.pattern)]

_RANDOM = 8  # bytes of a run id that are its own: 13 characters
_SLOT = 16  # bytes of a run id that name its place in the buffer: 26 characters
_SLOT_LENGTH = 26
_RECENT = 1_000  # keys whose encoding is cached: a trigger needs it twice, and some hundred are in flight
_DIGEST = "sha256:"  # begins a key that stands for another one
_MAX_KEY = 512  # bytes of a name in the store, and of a key that an index of PostgreSQL can hold in any encoding


class TaskRun(msgspec.Struct, kw_only=True):
    """A run, as its row has it. Moments are seconds of UTC; `payload` and `output` are JSON texts.

    `idempotency_key` is as `stored_key_of` makes it. `waits_for` is the child that a WAITING run waits for. See the
    migration for `changes`, `duplicate_of` and `frees_key`.
    """

    id: str
    environment: str
    task: str
    idempotency_key: str | None = None
    key_expires_at: float | None = None
    payload: str = "null"
    payload_digest: str = ""
    tags: list[str] = []
    metadata: dict[str, Any] = {}
    options: dict[str, Any] = {}
    state: State = QUEUED
    created_at: float = 0.0
    updated_at: float = 0.0
    available_at: float = 0.0
    attempts: int = 0
    max_attempts: int = 3
    lease_owner: str | None = None
    lease_until: float | None = None
    worker: str = ""
    started_at: float | None = None
    finished_at: float | None = None
    output: str | None = None
    error: str | None = None
    parent_id: str | None = None
    replay_of: str | None = None
    buffered_at: float | None = None
    duplicate_of: str | None = None
    changes: int = 0
    frees_key: int = 0
    waits_for: str | None = None

    def row(self) -> Row:
        """Its columns."""
        nested = {name: json_text(getattr(self, name)) for name in ("tags", "metadata", "options")}
        return msgspec.structs.asdict(self) | nested


def run_of(row: Row) -> TaskRun:
    """The run of this row."""
    return from_row(TaskRun, row)


def version_of(run: TaskRun) -> str:
    """What changes whenever the run does."""
    return version(run.updated_at, run.attempts, run.state)


def version(updated_at: float, attempts: int, state: State) -> str:
    """The version of a run with these columns, in the form of an offset of Electric."""
    return f"{int(1e6 * updated_at)}_{len(_STATES) * attempts + _STATES.index(state)}"


def json_text(value: object) -> str:
    """The value as a column of JSON."""
    return msgspec.json.encode(value).decode()


# -- ids and keys


def stored_key_of(key: str) -> str:
    """The user's key as it is stored: one that is too long for the store or an index is replaced by its digest, and so
    is one that could be taken for such a digest."""
    if len(key.encode()) <= _MAX_KEY and not key.startswith(_DIGEST):
        return key
    return f"{_DIGEST}{hashlib.sha256(key.encode()).hexdigest()}"


def slot_of_key(environment: str, task: str, key: str) -> str:
    """The place in the buffer of all runs of this key: at most one of them is buffered at a time."""
    return _letters(hashlib.sha256(claim_key(environment, task, key).encode()).digest()[:_SLOT])


def new_run_id(environment: str, task: str, key: str | None, item: str = "") -> str:
    """A fresh id; that of an item of a batch is the same whenever the item is sent. It ends with the run's place in the
    buffer, so that the id and the key both name that place: a buffered run is found by either with one read."""
    fresh = hashlib.sha256(item.encode()).digest() if item else secrets.token_bytes(_RANDOM + _SLOT)
    slot = _letters(fresh[_RANDOM : _RANDOM + _SLOT]) if key is None else slot_of_key(environment, task, key)
    return f"run_{_letters(fresh[:_RANDOM])}{slot}"


def slot_of(run_id: str) -> str:
    """The place in the buffer of the run with this id."""
    return run_id[-_SLOT_LENGTH:]


@lru_cache(_RECENT)
def claim_key(environment: str, task: str, key: str) -> str:
    """The logical key of the claim, as the document names it. Its parts are encoded: no two keys share a claim."""
    name = f"{_claims_of_task(environment, task)}:{part_of(key)}"
    if len(name) <= _MAX_KEY:
        return name
    return own(f"mollifier:idempotency:~{hashlib.sha256(name.encode()).hexdigest()}")


@lru_cache(_RECENT)
def _claims_of_task(environment: str, task: str) -> str:
    return f"{claims_of(environment)}{part_of(task)}"


def claims_of(environment: str) -> str:
    """The beginning of the claims of this environment, but for those whose names are too long."""
    return own(f"mollifier:idempotency:{part_of(environment)}:")


def digest_of(payload: object) -> str:
    """A digest of a JSON value, independent of the order of its fields and of white space."""
    return hashlib.sha256(msgspec.json.encode(payload, order="deterministic")).hexdigest()


def _letters(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()


# -- changes


class RunChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change that a caller makes of a run: `tags` adds some, `metadata` replaces or edits it, `cancel` ends the run,
    `reset` ends the protection of its key.

    `edits` are the operations of trigger.dev's client: set, delete, append, remove, increment of a top-level field, and
    update, which replaces all.
    """

    kind: Literal["tags", "metadata", "cancel", "reset"]
    at: float
    tags: list[str] = []
    metadata: dict[str, Any] | None = None
    edits: list[dict[str, Any]] = []

    def words(self) -> str:
        """What the timeline of the run says of it."""
        return ", ".join(self.tags) if self.kind == "tags" else ""


class BufferedRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run in the buffer as it was triggered, and the changes that were made since. It takes more while it is `open`;
    then it is sealed, and inserted into SQL as it is. A default is not written: sealing never enlarges an item."""

    run: TaskRun
    changes: list[RunChange] = []
    open: bool = False

    @property
    def current(self) -> TaskRun:
        """The run with all changes."""
        run = self.run
        for change in self.changes:
            run = changed(run, change)
        return msgspec.structs.replace(run, changes=len(self.changes))

    @property
    def live(self) -> bool:
        """True if its key still protects it."""
        expires = self.current.key_expires_at
        return self.run.idempotency_key is not None and (expires is None or expires > now())


def changed(run: TaskRun, change: RunChange) -> TaskRun:
    """The run after the change. A run that has ended keeps its state."""
    if change.kind == "tags":
        added = [tag for tag in dict.fromkeys(change.tags) if tag not in run.tags]
        return msgspec.structs.replace(run, tags=[*run.tags, *added], updated_at=change.at)
    if change.kind == "metadata":
        metadata = edited(run.metadata if change.metadata is None else change.metadata, change.edits)
        return msgspec.structs.replace(run, metadata=metadata, updated_at=change.at)
    if change.kind == "reset":
        return msgspec.structs.replace(run, key_expires_at=0.0)  # over by the clock of every replica
    if run.state in ENDED:
        return run
    ended: Any = {"state": CANCELED, "finished_at": change.at, "lease_owner": None, "lease_until": None}
    return msgspec.structs.replace(run, **ended, updated_at=change.at)


def edited(metadata: dict[str, Any], edits: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The metadata after these operations. InvalidInput if it is too large then, or they take too long."""
    metadata = {name: [*value] if isinstance(value, list) else value for name, value in metadata.items()}
    compared = 0
    for edit in edits:
        there = metadata.get(str(edit.get("key", "")))
        if edit.get("type") == "remove" and isinstance(there, list):
            compared += len(there) * _values_in(edit.get("value"))
        if compared > _MOST_COMPARED:
            raise InvalidInput(f"operations: they look at more than {_MOST_COMPARED} values; send fewer at once")
        _edit(metadata, edit)
    if edits and len(msgspec.json.encode(metadata)) > MOST_METADATA:
        raise InvalidInput(f"the metadata would have more than {MOST_METADATA} bytes; put it into the output")
    return metadata


def _values_in(value: object) -> int:
    """How many values a comparison with this one looks at, at most."""
    if isinstance(value, dict):
        return 1 + sum(map(_values_in, value.values()))
    return 1 + sum(map(_values_in, value)) if isinstance(value, list) else 1


def _edit(metadata: dict[str, Any], edit: dict[str, Any]) -> None:
    """Applies one operation; one that does not fit the value that is there changes nothing, as in trigger.dev."""
    key, value, there = str(edit.get("key", "")), edit.get("value"), metadata.get(str(edit.get("key", "")))
    kind = edit.get("type")
    if kind == "set":
        metadata[key] = value
    elif kind == "update":
        metadata.clear()
        metadata.update(value or {})
    elif kind == "delete":
        metadata.pop(key, None)
    elif kind == "append":
        if isinstance(there, list):
            there.append(value)
        else:
            metadata[key] = [value] if there is None else [there, value]
    elif kind == "remove" and isinstance(there, list):
        metadata[key] = [each for each in there if each != value]
    elif kind == "increment" and isinstance(there or 0, int | float) and isinstance(value, int | float):
        metadata[key] = _sum(key, there or 0, value)


def _sum(key: str, there: float, value: float) -> float:
    """InvalidInput if no float has it: JSON could not give it back."""
    with suppress(OverflowError):  # of an integer that is too large for a float
        total = there + value
        if math.isfinite(total):
            return total
    raise InvalidInput(f"operations: {key!r:.80} would be beyond the numbers of a float")


def now() -> float:
    """Seconds of UTC."""
    return time.time()
