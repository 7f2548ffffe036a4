"""Dead letters over HTTP: push, list and inspect them; or take one under a lease, run it, and ack or fail it."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import unquote

import msgspec

from ...dead_letters.flow import Letter, queue_of
from ...dead_letters.hand_over import MAX_TOKEN, LetterInHand
from ...dead_letters.handle import AsyncDeadLetters
from ...model import item_key
from ...stores import AsyncStore
from ..parts import ListPart, Read, in_parts
from ..problems import UNKNOWN, Problem
from ..routes import KIB, READ, WRITE, Answer, Body, Call, Key, PageSize, Prefix, Reason, Route, timestamp

CAP = 512 * KIB  # bytes: the largest letter, with room to spare
TRIED = 100  # letters that `take` tries without an id: others may run the first ones
_LAST = "\U0010ffff"  # sorts behind every id

LetterToken = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TOKEN, description="a secret")]
ErrorText = Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
Attempts = Annotated[int, msgspec.Meta(ge=1, le=10**9)]


class PushLetter(Body):
    """The payload that failed, and its error. `key` deduplicates the work; the default id is the key, or a digest of
    the payload."""

    group: Key
    payload: Any
    error: ErrorText
    key: Key | None = None
    attempts: Attempts = 1
    origin: Annotated[str, msgspec.Meta(max_length=200)] = ""
    id: Key | None = None


class LettersQuery(Body):
    """The letters of a group with an id greater than `after`."""

    group: Key
    after: Prefix = ""
    limit: PageSize = 100


class LetterQuery(Body):
    """One letter."""

    group: Key
    id: Key


class GroupsQuery(Body):
    """Groups whose name comes after `after`."""

    after: Prefix = ""
    limit: PageSize = 100


class TakeLetter(Body):
    """The letter with this id; without one, the first that nobody runs."""

    group: Key
    id: Key | None = None
    after: Prefix = ""


class AckLetter(Body):
    """The letter was run and succeeded; claims of its key return `value`."""

    group: Key
    token: LetterToken
    value: Any = None


class FailLetter(Body):
    """The letter was run and failed again."""

    group: Key
    token: LetterToken
    error: ErrorText


class PurgeLetters(Body):
    """The letter with this id, those whose last error contains `error`, or all letters of the group."""

    group: Key
    reason: Reason
    id: Key | None = None
    error: ErrorText | None = None
    all: bool = False

    @property
    def key(self) -> str:
        """The key in the audit log."""
        return self.group if self.id is None else f"{self.group}/{self.id}"


class LetterRow(Answer):
    """A letter without its payload."""

    id: str
    group: str
    key: str
    attempts: int
    first_error: str
    last_error: str
    first_at: float
    last_at: float
    origin: str
    fence: int


class FullLetter(LetterRow):
    """A letter; a payload of bytes is in `raw`, in base64, and any other in `payload`."""

    payload: Any = None
    raw: bytes | None = None


class LettersPage(Answer):
    """In the order of ids. If `next` is not null there may be more, after it."""

    letters: list[LetterRow]
    next: str | None


class LetterGroups(Answer):
    """Groups that have letters. If `next` is not null there may be more, after it."""

    groups: list[str]
    next: str | None


class TakenLetter(Answer):
    """`outcome` is taken; with an id, also skipped (its work has succeeded), busy, gone or unreadable; or none.

    The letter is leased for 30 s; POST /v1/locks/renew with `lease` as token extends that.
    """

    outcome: str
    letter: FullLetter | None = None
    token: str = ""
    lease: str = ""


class LetterAnswer(Answer):
    """replayed, failed, or gone."""

    outcome: str


class Purged(Answer):
    """How many letters were removed."""

    purged: int


def _box(call: Call[Any, Any], group: str) -> AsyncDeadLetters:
    return call.service.once.dead_letters(group)


def _fields(letter: Letter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "group": letter.group,
        "key": letter.key,
        "attempts": letter.attempts,
        "first_error": letter.first_error,
        "last_error": letter.last_error,
        "first_at": timestamp(letter.first_at),
        "last_at": timestamp(letter.last_at),
        "origin": letter.origin,
        "fence": letter.fence,
    }


def letter_row(letter: Letter) -> LetterRow:
    """The letter without its payload."""
    return LetterRow(**_fields(letter))


def _full(letter: Letter) -> FullLetter:
    if isinstance(letter.payload, bytes):
        return FullLetter(**_fields(letter), raw=letter.payload)
    return FullLetter(**_fields(letter), payload=letter.payload)


async def push(call: Call[PushLetter, None]) -> FullLetter:
    """Pushes a dead letter."""
    wanted = call.body
    letter = await _box(call, wanted.group).push(
        wanted.payload,
        error=wanted.error,
        key=wanted.key or "",
        attempts=wanted.attempts,
        origin=wanted.origin or f"{call.principal.name}, over HTTP",
        id=wanted.id,
    )
    return _full(letter)


async def list_letters(call: Call[None, LettersQuery]) -> LettersPage:
    """Lists the dead letters of a group in the order of their ids."""
    query = call.query
    read = rows_of(_box(call, query.group))
    page = await in_parts(read, query.after, query.limit, call.service.settings.store_timeout / 2)
    return LettersPage(letters=page.rows, next=page.last or None)


def rows_of(box: AsyncDeadLetters) -> Read[LetterRow]:
    """Reads rows of the letters."""

    async def read(after: str, limit: int) -> ListPart[LetterRow]:
        found = await box.list(after=after, limit=limit)
        return ListPart([letter_row(letter) for letter in found], found[-1].id if len(found) == limit else "")

    return read


async def inspect(call: Call[None, LetterQuery]) -> FullLetter:
    """Returns one dead letter, with its payload."""
    letter = await _box(call, call.query.group).inspect(call.query.id)
    if letter is None:
        raise Problem(UNKNOWN, "there is no such letter, or no longer")
    return _full(letter)


async def groups(call: Call[None, GroupsQuery]) -> LetterGroups:
    """Lists the groups that have dead letters."""
    found = await group_names(call.service.store, call.query.after, call.query.limit)
    return LetterGroups(groups=found, next=found[-1] if len(found) == call.query.limit else None)


async def group_names(store: AsyncStore, after: str, limit: int) -> list[str]:
    """The groups that have letters, in name order, by one short scan per group."""
    prefix, found = item_key(queue_of(""), "").rstrip("/"), list[str]()
    position = item_key(queue_of(after), _LAST) if after else ""
    while len(found) < limit and (item := await store.scan(prefix, position, 1)):
        found.append(unquote(item[0].key.split("/", 2)[1]).removeprefix(queue_of("")))
        position = item_key(queue_of(found[-1]), _LAST)
    return found


async def take(call: Call[TakeLetter, None]) -> TakenLetter:
    """Leases a dead letter to the caller, to run it exclusively."""
    wanted, box = call.body, _box(call, call.body.group)
    if wanted.id is not None:
        return _taken(await box.take(wanted.id))
    for letter in await box.list(after=wanted.after, limit=TRIED):
        taken = await box.take(letter.id)
        if isinstance(taken, LetterInHand):
            return _taken(taken)
    return TakenLetter(outcome="none")


def _taken(found: Any) -> TakenLetter:
    if not isinstance(found, LetterInHand):
        return TakenLetter(outcome=found.value)
    return TakenLetter(outcome="taken", letter=_full(found.letter), token=found.token, lease=found.lease)


async def ack(call: Call[AckLetter, None]) -> LetterAnswer:
    """Acknowledges a taken letter, which was run and succeeded."""
    return LetterAnswer(outcome=await _box(call, call.body.group).ack(call.body.token, call.body.value))


async def fail(call: Call[FailLetter, None]) -> LetterAnswer:
    """Fails a taken letter, which was run and failed again."""
    return LetterAnswer(outcome=await _box(call, call.body.group).fail(call.body.token, call.body.error))


ROUTES = [
    Route("GET", "/v1/dead-letters", READ, list_letters),
    Route("GET", "/v1/dead-letters/groups", READ, groups),
    Route("GET", "/v1/dead-letters/letter", READ, inspect, refusals=(UNKNOWN,)),
    Route(
        "POST",
        "/v1/dead-letters/push",
        WRITE,
        push,
        cap=CAP,
        again="The same letter, with one more attempt. Where a response can be lost, send an Idempotency-Key.",
        keyed=True,
    ),
    Route(
        "POST",
        "/v1/dead-letters/take",
        WRITE,
        take,
        grants=True,
        again="Takes another, or returns `busy`: a letter that is neither acked nor failed is free again after 30 s.",
    ),
    Route("POST", "/v1/dead-letters/ack", WRITE, ack, cap=CAP, again="Safe: returns `gone`."),
    Route(
        "POST",
        "/v1/dead-letters/fail",
        WRITE,
        fail,
        again="Counts one more failure. Where a response can be lost, send an Idempotency-Key.",
        keyed=True,
    ),
]
