"""Dead letters over HTTP: parked, listed, inspected, purged; and replayed by whoever can run them: a letter is taken
under a lease, run, and then acked or failed."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import unquote

import msgspec

from ...dead_letters.flow import Letter, queue_of
from ...dead_letters.hand_over import MAX_TOKEN, LetterInHand
from ...dead_letters.handle import AsyncDeadLetters
from ...model import item_key
from ..problems import UNKNOWN, Problem
from ..routes import ADMIN, KIB, READ, WRITE, Answer, Body, Call, Key, PageSize, Prefix, Reason, Route
from .times import moment

CAP = 512 * KIB  # bytes: the largest letter that is kept, with room
LOOKED_AT = 100  # letters that are tried when any will do: those before it are being run by others
_LAST = "\U0010ffff"  # sorts behind every id

LetterToken = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TOKEN, description="a secret")]
ErrorText = Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
Attempts = Annotated[int, msgspec.Meta(ge=1, le=10**9)]


class PushLetter(Body):
    """What failed, and how. `key` is what the work is deduplicated by; the id is that, or a digest of the payload."""

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
    """The letter of this id, or, without one, the first that nobody runs."""

    group: Key
    id: Key | None = None
    after: Prefix = ""


class AckLetter(Body):
    """It was run and succeeded; `value` is what claims of its key are answered with."""

    group: Key
    token: LetterToken
    value: Any = None


class FailLetter(Body):
    """It was run and failed again."""

    group: Key
    token: LetterToken
    error: ErrorText


class PurgeLetters(Body):
    """The letter of this id, or all of the group."""

    group: Key
    reason: Reason
    id: Key | None = None
    all: bool = False

    @property
    def key(self) -> str:
        """What the audit log names."""
        return self.group if self.id is None else f"{self.group}/{self.id}"


class LetterFacts(Answer):
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


class FullLetter(LetterFacts):
    """A letter; a payload of bytes stands in `raw`, in base64, and any other in `payload`."""

    payload: Any = None
    raw: bytes | None = None


class LettersPage(Answer):
    """In the order of ids. If `next` is not null there may be more: ask for those after it."""

    letters: list[LetterFacts]
    next: str | None


class Groups(Answer):
    """Groups that have letters. If `next` is not null there may be more: ask for those after it."""

    groups: list[str]
    next: str | None


class TakenLetter(Answer):
    """`outcome` is taken; or, of a letter that was named: skipped (its work had succeeded), busy, gone or unreadable;
    or none.

    A taken one is yours for 30 s; POST /v1/locks/renew with `lease` as token extends that.
    """

    outcome: str
    letter: FullLetter | None = None
    token: str = ""
    lease: str = ""


class LetterAnswer(Answer):
    """replayed, failed, or gone."""

    outcome: str


class Purged(Answer):
    """How many were removed."""

    purged: int


def _box(call: Call[Any, Any], group: str) -> AsyncDeadLetters:
    return call.service.once.dead_letters(group)


def _facts(letter: Letter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "group": letter.group,
        "key": letter.key,
        "attempts": letter.attempts,
        "first_error": letter.first_error,
        "last_error": letter.last_error,
        "first_at": moment(letter.first_at),
        "last_at": moment(letter.last_at),
        "origin": letter.origin,
        "fence": letter.fence,
    }


def _full(letter: Letter) -> FullLetter:
    if isinstance(letter.payload, bytes):
        return FullLetter(**_facts(letter), raw=letter.payload)
    return FullLetter(**_facts(letter), payload=letter.payload)


async def push(call: Call[PushLetter, None]) -> FullLetter:
    """Parks what failed."""
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
    """A page of letters."""
    asked = call.query
    found = await _box(call, asked.group).list(after=asked.after, limit=asked.limit)
    following = found[-1].id if len(found) == asked.limit else None
    return LettersPage(letters=[LetterFacts(**_facts(letter)) for letter in found], next=following)


async def inspect(call: Call[None, LetterQuery]) -> FullLetter:
    """The letter with its payload."""
    letter = await _box(call, call.query.group).inspect(call.query.id)
    if letter is None:
        raise Problem(UNKNOWN, "there is no such letter, or no longer")
    return _full(letter)


async def groups(call: Call[None, GroupsQuery]) -> Groups:
    """The groups, found by jumping from one to the next."""
    prefix = item_key(queue_of(""), "").rstrip("/")
    asked, found = call.query, list[str]()
    after = item_key(queue_of(asked.after), _LAST) if asked.after else ""
    while len(found) < asked.limit:
        item = await call.service.store.scan(prefix, after, 1)
        if not item:
            return Groups(groups=found, next=None)
        found.append(unquote(item[0].key.split("/", 2)[1]).removeprefix(queue_of("")))
        after = item_key(queue_of(found[-1]), _LAST)
    return Groups(groups=found, next=found[-1])


async def take(call: Call[TakeLetter, None]) -> TakenLetter:
    """Hands a letter out."""
    wanted, box = call.body, _box(call, call.body.group)
    if wanted.id is not None:
        return _taken(await box.take(wanted.id))
    for letter in await box.list(after=wanted.after, limit=LOOKED_AT):
        told = await box.take(letter.id)
        if isinstance(told, LetterInHand):
            return _taken(told)
    return TakenLetter(outcome="none")


def _taken(told: Any) -> TakenLetter:
    if not isinstance(told, LetterInHand):
        return TakenLetter(outcome=told.value)
    return TakenLetter(outcome="taken", letter=_full(told.letter), token=told.token, lease=told.lease)


async def ack(call: Call[AckLetter, None]) -> LetterAnswer:
    """The letter is gone, and its key is done."""
    return LetterAnswer(outcome=await _box(call, call.body.group).ack(call.body.token, call.body.value))


async def fail(call: Call[FailLetter, None]) -> LetterAnswer:
    """The letter stays, with one more attempt."""
    return LetterAnswer(outcome=await _box(call, call.body.group).fail(call.body.token, call.body.error))


async def purge(call: Call[PurgeLetters, None]) -> Purged:
    """Removes letters for good."""
    wanted = call.body
    box = call.service.clearing.dead_letters(wanted.group)
    return Purged(purged=await box.purge(wanted.id, all=wanted.all, reason=wanted.reason))


ROUTES = [
    Route("GET", "/v1/dead-letters", READ, list_letters, "List the dead letters of a group in the order of ids"),
    Route("GET", "/v1/dead-letters/groups", READ, groups, "List the groups that have dead letters"),
    Route(
        "GET",
        "/v1/dead-letters/letter",
        READ,
        inspect,
        "Look at one dead letter, with its payload",
        refusals=(UNKNOWN,),
    ),
    Route(
        "POST",
        "/v1/dead-letters/push",
        WRITE,
        push,
        "Park what failed",
        cap=CAP,
        again="The same letter, which failed once more. Where an answer can be lost, send an Idempotency-Key.",
        keyed=True,
    ),
    Route(
        "POST",
        "/v1/dead-letters/take",
        WRITE,
        take,
        "Take a dead letter, to run it again as the only one",
        grants=True,
        again="Takes another, or is told `busy`: one that was taken and not answered comes back after 30 s.",
    ),
    Route(
        "POST",
        "/v1/dead-letters/ack",
        WRITE,
        ack,
        "The letter that was taken was run, and succeeded",
        cap=CAP,
        again="Safe: told that it is gone.",
    ),
    Route(
        "POST",
        "/v1/dead-letters/fail",
        WRITE,
        fail,
        "The letter that was taken was run, and failed",
        again="Counts one more failure. Where an answer can be lost, send an Idempotency-Key.",
        keyed=True,
    ),
    Route(
        "POST",
        "/v1/dead-letters/purge",
        ADMIN,
        purge,
        "Remove a dead letter, or all of a group",
        again="Safe: there is nothing left to remove, unless something failed since.",
    ),
]
