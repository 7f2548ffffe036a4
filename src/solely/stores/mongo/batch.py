"""Batches as generators without I/O: they yield lists of commands that may be sent side by side, and get the answers.

An op alone is one findAndModify. Many go as one update command, which performs each in a step of its own on the
server's clock and waits for journal and majority once for all; one find then reads what they left. That look may come
a moment after the step, so only ops go that way whose reply it cannot make wrong: what is mine is still mine, and who
is gone is remembered. Take, Ack, Return, Amend, Count and Unhit always go alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from bson.errors import BSONError
from pymongo.errors import PyMongoError

from ...errors import SolelyError, StoreError, StoreFailed, StoreUnavailable, Unanswered
from ...kinds import check_ops
from ...model import Entry, Released, State, line_key
from ...ops import (
    MAX_BATCH,
    Ack,
    Acquire,
    Advance,
    Amend,
    Count,
    Finish,
    Hit,
    Mark,
    Op,
    Push,
    Read,
    Release,
    Renew,
    Reply,
    Return,
    Take,
    Unhit,
)
from .. import Answers, OnHint
from ..batches import key_of, queue_of
from . import quick, replies
from .commands import Commands
from .faults import KeyRace, answered, explain, not_confirmed
from .plans import plan_of
from .quick import Command

T = TypeVar("T")
CommandResult = dict[str, Any] | PyMongoError | BSONError
CommandSteps = Generator[list[Command], list[CommandResult], T]

MAX_LIMIT = 1_000  # hits in one document, which is rewritten with each: 60 KiB. A higher limit is a task for a counter
MOST_RACES = 5  # times that others can make, and the TTL index remove, a document between two looks: once is rare
MAX_COMMAND = 8 * 1024 * 1024  # bytes: half of what MongoDB takes as one command
WHOLE_BATCH = 4 * 1024 * 1024  # bytes of values: a find that answers less was not cut off at 16 MiB by the server

_ALONE = frozenset((Take, Ack, Return, Amend, Count, Unhit))
_STATEMENT = 8 * 1024  # bytes of an op without its value: twice the longest pipeline


class MongoBatch:
    """One batch under way."""

    def __init__(self, commands: Commands, server: str, on_hint: OnHint | None) -> None:
        self._commands = commands
        self._server = server
        self._on_hint = on_hint
        self._doubt = False  # something of this batch was or may have been performed

    def perform(self, ops: Sequence[Op]) -> CommandSteps[Answers]:
        """One reply per op, in order; Unanswered if it may have been performed, StoreUnavailable if it was not."""
        check_ops(ops)
        if len(ops) == 1:
            return [(yield from self._one(ops[0]))]
        found: dict[int, Reply | StoreError] = {}
        for level in levels(ops):
            places = list(_portions(ops, level))
            self._doubt = self._doubt or len(places) > 1
            parts = [self._part([ops[place] for place in portion]) for portion in places]
            for portion, answers in zip(places, (yield from _side_by_side(parts)), strict=True):
                found.update(zip(portion, answers, strict=True))
        return [found[place] for place in range(len(ops))]

    def _part(self, ops: list[Op]) -> CommandSteps[Answers]:
        if len(ops) == 1:
            return [(yield from self._one(ops[0]))]
        if type(ops[0]) is Read:
            documents = yield from self._documents(ops)
            return [plan_of(op).reply(op, documents.get(key_of(op)), "") for op in ops]
        return (yield from self._together(ops))

    # -- one op

    def _one(self, op: Op) -> CommandSteps[Reply | StoreError]:
        if type(op) is Hit and op.limit > MAX_LIMIT:
            return StoreFailed(f"MongoDB keeps limits of at most {MAX_LIMIT} hits, not {op.limit}", key=op.key)
        try:
            if type(op) is Read:
                documents = yield from self._documents([op])
                return plan_of(op).reply(op, documents.get(op.key), "")
            if type(op) is Count:
                (counted,) = yield from self._send([self._commands.count(op)])
                return sum(int(found["items"]) for found in counted["cursor"]["firstBatch"])
            if type(op) is Take:
                return (yield from self._take(op))
            if type(op) is Acquire or type(op) is Release:
                return (yield from self._quickly(op))
            reply = yield from self._modify(op)
            yield from self._call_first([op], [reply])
            return reply
        except StoreUnavailable:
            raise
        except StoreError as error:
            return error

    def _take(self, op: Take) -> CommandSteps[Reply]:
        (mine,) = yield from self._send([self._commands.taken_by(op)])
        if mine["cursor"]["firstBatch"]:
            return replies.taken(op, mine["cursor"]["firstBatch"][0], "")
        item = yield from self._modify(op)
        if item is not None or not op.client:
            return item
        with suppress(KeyRace):  # another made the line at this instant: the next look joins it
            yield from self._send([self._commands.join_line(op)])
        (found,) = yield from self._send([self._commands.next_item(op)])
        return replies.no_item(found["cursor"]["firstBatch"])

    def _call_first(self, ops: Sequence[Op], answers: Answers) -> CommandSteps[None]:
        """Notifies the first in the line of each queue that got items. Not in a transaction, which a change of the line
        by others would abort; and no failure of it is one of the ops."""
        queues = Counter(
            op.queue
            for op, reply in zip(ops, answers, strict=True)
            if (type(op) is Push or type(op) is Return) and reply is True and not op.delay
        )
        if not queues or self._commands.transaction:
            return
        calls = [self._commands.call_first(queue, items) for queue, items in queues.items()]
        with suppress(StoreError):
            results = yield from self._send([command for command, _ in calls])
            for queue, (_, name), result in zip(queues, calls, results, strict=True):
                if self._on_hint is not None and self._commands.client in replies.notified(result["value"], name):
                    self._on_hint(line_key(queue))

    def _quickly(self, op: Acquire | Release) -> CommandSteps[Reply]:
        """The cheap command, where it is likely to do; else, or if it did nothing, the one that decides everything."""
        command = None if op.key in self._commands.contended else self._commands.quick(op)
        if command is not None:
            try:
                (result,) = yield from self._send([command])
            except KeyRace:
                pass
            else:
                if type(op) is Acquire:
                    return quick.acquired(op, result)
                if result["n"]:
                    return Released.RELEASED
        return (yield from self._modify(op))

    def _modify(self, op: Op) -> CommandSteps[Reply]:
        """The reply to one op; when another made the document at the same instant, nothing was performed: again."""
        command, name = self._commands.alone(op)
        for _ in range(MOST_RACES):
            try:
                (result,) = yield from self._send([command])
            except KeyRace as race:
                lost = race
            else:
                return self._reply(op, result["value"], name)
        raise lost

    def _reply(self, op: Op, document: dict[str, Any] | None, name: str) -> Reply:
        if name and self._on_hint is not None and self._commands.client in replies.notified(document, name):
            self._on_hint(key_of(op))
        reply = plan_of(op).reply(op, document, name)
        if type(op) is Acquire or type(op) is Release or type(op) is Renew:
            self._commands.contended.learn(op.key, reply)
        return reply

    # -- many

    def _together(self, ops: list[Op]) -> CommandSteps[Answers]:
        command, names = self._commands.together(ops)
        try:
            (result,) = yield from self._send([command])
        except StoreUnavailable:
            raise
        except StoreError as error:
            return [error] * len(ops)
        failed = {error["index"]: error for error in result.get("writeErrors", ())}
        made = {upserted["index"] for upserted in result.get("upserted", ())}
        unread = [
            op for place, op in enumerate(ops) if place not in failed and not (place in made and type(op) is Mark)
        ]
        documents = yield from self._documents(unread, result.get("operationTime"))
        answers: Answers = []
        for place, (op, name) in enumerate(zip(ops, names, strict=True)):
            if place in failed:
                answers.append((yield from self._failed(op, failed[place])))
            elif place in made and type(op) is Mark:
                answers.append(True)
            else:
                reply = self._reply(op, documents.get(key_of(op)), name)
                answers.append(reply if not _passed_by(op, reply) else (yield from self._one(op)))
        yield from self._call_first(ops, answers)
        return answers

    def _failed(self, op: Op, error: dict[str, Any]) -> CommandSteps[Reply | StoreError]:
        fault = answered(self._server, error.get("code"), str(error.get("errmsg", "")))
        if isinstance(fault, KeyRace):
            return (yield from self._one(op))
        if isinstance(fault, StoreUnavailable):
            raise Unanswered(str(fault))
        return fault

    def _documents(self, ops: Sequence[Op], after: Any = None) -> CommandSteps[dict[str, dict[str, Any]]]:
        """The documents of these ops by key. What is not among them is not there."""
        found: dict[str, dict[str, Any]] = {}
        while ops:
            (result,) = yield from self._send([self._commands.documents(ops, after)])
            documents = result["cursor"]["firstBatch"]
            found |= {document["_id"]: document for document in documents}
            whole = sum(len(document.get("value") or b"") for document in documents) < WHOLE_BATCH
            ops = [] if whole or not documents else [op for op in ops if key_of(op) not in found]
        return found

    def _send(self, commands: list[Command]) -> CommandSteps[list[dict[str, Any]]]:
        """The answers to these commands; raises the first error among them, or in them."""
        results = []
        for answer in (yield commands):
            if not isinstance(answer, dict):
                raise self._fault(answer)
            unsure = not_confirmed(self._server, answer)
            if unsure is not None:
                raise unsure
            results.append(answer)
        self._doubt = True
        return results

    def _fault(self, error: PyMongoError | BSONError) -> SolelyError:
        fault = explain(self._server, error)
        return Unanswered(str(fault)) if type(fault) is StoreUnavailable and self._doubt else fault


def _passed_by(op: Op, reply: Reply) -> bool:
    """True if a refused Acquire was only looked at when the key was free again: it deserves another try."""
    return type(op) is Acquire and isinstance(reply, Entry) and reply.state is State.FREE and not reply.gone


def levels(ops: Sequence[Op]) -> list[list[int]]:
    """The places of the ops that can be performed side by side, level by level: each op sees what went before it.

    Ops on one key come one after the other; a Take, a Count or an op on the line of a queue comes after, and before,
    all others that touch this queue; no Push comes before an earlier one to its queue, whose item has to be taken
    first."""
    found: list[list[int]] = []
    by_key: dict[str, int] = {}  # the last level that works on this key …
    by_queue: dict[str, int] = {}  # … on any item of this queue …
    takes: dict[str, int] = {}  # … the last that takes from it, or counts it …
    pushes: dict[str, int] = {}  # … and the last that pushes to it
    for place, op in enumerate(ops):
        queue = queue_of(op)
        of_line = not queue and op.key.startswith("line/")  # type: ignore[union-attr] # only queue ops have no key
        if of_line:
            queue = f"item/{op.key[5:]}/"  # type: ignore[union-attr]
        if of_line or type(op) is Take or type(op) is Count:
            level = takes[queue] = by_queue.get(queue, -1) + 1
        else:
            key = key_of(op)
            level = max(by_key.get(key, -1), takes.get(queue, -1)) + 1
            if type(op) is Push:
                level = pushes[queue] = max(level, pushes.get(queue, -1))
            by_key[key] = level
        if queue:
            by_queue[queue] = max(level, by_queue.get(queue, -1))
        while len(found) <= level:
            found.append([])
        found[level].append(place)
    return found


def _portions(ops: Sequence[Op], level: Iterable[int]) -> Iterable[list[int]]:
    """The places of one level by command: Reads, what goes alone, and the rest as far as one command can hold it."""
    reads, rest, size = list[int](), list[int](), 0
    for place in level:
        op = ops[place]
        if type(op) is Read:
            reads.append(place)
        elif type(op) in _ALONE or (type(op) is Hit and op.limit > MAX_LIMIT):
            yield [place]
        else:
            more = _weight(op)
            if rest and (len(rest) == MAX_BATCH or size + more > MAX_COMMAND):
                yield rest
                rest, size = [], 0
            rest.append(place)
            size += more
    for places in (rest, reads):
        if places:
            yield places


def _weight(op: Op) -> int:
    """About how many bytes the op takes in a command."""
    match op:
        case Finish() | Advance():
            return _STATEMENT + 3 * len(op.value)  # a watermark also goes as hex
        case Push():
            return _STATEMENT + len(op.payload)
    return _STATEMENT


def _side_by_side(parts: list[CommandSteps[T]]) -> CommandSteps[list[T]]:
    """The results of all parts; what they send at the same time is sent together."""
    results: dict[int, T] = {}
    pending: dict[int, list[Command]] = {}

    def go_on(place: int, answers: list[CommandResult] | None) -> None:
        try:
            pending[place] = parts[place].send(answers)  # type: ignore[arg-type]
        except StopIteration as end:
            pending.pop(place, None)
            results[place] = end.value

    for place in range(len(parts)):
        go_on(place, None)
    while pending:
        sent = list(pending.items())
        answers = yield [command for _, commands in sent for command in commands]
        for place, commands in sent:
            go_on(place, answers[: len(commands)])
            answers = answers[len(commands) :]
    return [results[place] for place in range(len(parts))]
