"""The commands that are sent to MongoDB. Pure: nothing here talks to a server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

from bson.int64 import Int64

from ...model import State, line_key
from ...ops import Acquire, Count, Mark, Op, Push, Release, Take
from .. import Clock
from ..batches import key_of, queue_of
from ..transitions import US
from . import quick
from .expressions import NOW, Pipeline
from .pipelines import CALL_FIRST, JOIN_LINE, MARK_INSIDE
from .plans import ENTRY, Variables, plan_of
from .quick import Command, ContendedKeys

INDEXES = ("solely_purge", "solely_queue", "solely_taken")
_IN_TURN = {"available": 1, "pushed": 1, "serial": 1}  # the order of a queue


class Commands:
    """Writes commands for one collection, on the server's clock or an injected one."""

    def __init__(self, collection: str, client: str, *, clock: Clock | None, timeout: float) -> None:
        self.collection = collection
        self.client = client
        self.contended = ContendedKeys()
        self._clock = clock
        self.transaction = False
        self._numbers = count(1)
        wait = max(1, round(timeout * 1_000))  # ms; the server gives up when nobody waits for its answer any more
        # What is answered survives the loss of any minority of the servers, and a power cut on all of them.
        self._writing: Command = {"writeConcern": {"w": "majority", "j": True, "wtimeout": wait}, "maxTimeMS": wait}
        # Never shows what a failover may take back. A primary that was deposed and does not know it yet may still
        # show an older state for a moment: Read is for looking, and only ops that write decide.
        self._reading: Command = {"readConcern": {"level": "majority"}, "maxTimeMS": wait}

    def in_transaction(self) -> Commands:
        """The same for a transaction, which has its own read and write concern."""
        inner = Commands(self.collection, self.client, clock=self._clock, timeout=1.0)
        inner._numbers, inner._writing, inner._reading = self._numbers, {}, {}
        inner.transaction = True
        return inner

    # -- ops

    def alone(self, op: Op) -> tuple[Command, str]:
        """The findAndModify that performs this op, and the name that the op goes by."""
        plan = plan_of(op)
        variables, name = self._variables(op)
        command: Command = {
            "findAndModify": self.collection,
            "query": {"_id": key_of(op)},
            "update": self._pipeline(op),
            "let": self._let() | {name: {"$literal": value} for name, value in variables.items()},
            "new": not plan.before,
            "upsert": plan.upsert,
            "fields": plan.fields,
            **self._writing,
        }
        if type(op) is Take:
            command["query"] = {"queue": queue_of(op), "$expr": {"$lte": ["$available", "$$now"]}}
            command["sort"] = _IN_TURN
            if op.id:
                command["query"]["_id"] = key_of(op)
        return command, name

    def quick(self, op: Op) -> Command | None:
        """A cheaper command that performs this op if nobody else has to do with its key, else nothing; None if none."""
        if self.transaction:  # which a duplicate key would abort
            return None
        if type(op) is Acquire:
            return quick.acquire(op, self.collection, self._let()) | self._writing
        if type(op) is Release and not (op.revoke or op.delay or op.keep):
            return quick.release(op, self.collection, self._let()) | self._writing
        return None

    def together(self, ops: Sequence[Op]) -> tuple[Command, list[str]]:
        """One update command that performs these ops, each in a step of its own, and the names that they go by."""
        statements, names = [], []
        for op in ops:
            plan = plan_of(op)
            variables, name = self._variables(op)
            update = self._pipeline(op)
            statements.append({"q": {"_id": key_of(op)}, "u": update, "c": variables, "upsert": plan.upsert})
            names.append(name)
        command = {"update": self.collection, "updates": statements, "let": self._let(), "ordered": False}
        return command | self._writing, names

    def documents(self, ops: Iterable[Op], after: Any = None) -> Command:
        """The find for the documents of these ops, as they are after that operationTime, where there is one."""
        fields: dict[str, Any] = {}
        for op in ops:
            fields |= plan_of(op).fields
        find = self._find({"_id": {"$in": [key_of(op) for op in ops]}}, fields)
        if after is not None and "readConcern" in find:
            find["readConcern"] = find["readConcern"] | {"afterClusterTime": after}
        return find

    def taken_by(self, op: Take) -> Command:
        """The find for the item that this owner has already."""
        mine = {"queue": queue_of(op), "owner": op.owner, "state": State.HELD.value}
        return self._find(mine | {"$expr": {"$gt": ["$until", "$$now"]}}, ENTRY) | {"limit": 1}

    def join_line(self, op: Take) -> Command:
        """The findAndModify that puts the op's client in the line of its queue."""
        return self._in_line(op.queue, {}, JOIN_LINE, {"client": op.client, "owner": op.owner}) | {"upsert": True}

    def call_first(self, queue: str, items: int) -> tuple[Command, str]:
        """The findAndModify that notifies the first in the line of a queue that got `items`, and its name."""
        name = f"{self.client}/{next(self._numbers)}"
        somebody = {"waiters.0": {"$exists": True}}
        return self._in_line(queue, somebody, CALL_FIRST, {"by": name, "items": items}), name

    def _in_line(self, queue: str, query: dict[str, Any], update: Pipeline, variables: Variables) -> Command:
        return {
            "findAndModify": self.collection,
            "query": {"_id": line_key(queue)} | query,
            "update": update,
            "let": self._let() | {name: {"$literal": value} for name, value in variables.items()},
            "new": True,
            "fields": {"notified": 1},
            **self._writing,
        }

    def next_item(self, op: Take) -> Command:
        """The find for the item of the queue that becomes available next."""
        find = self._find({"queue": queue_of(op)}, {"available": 1, "now": "$$now"})
        return find | {"sort": _IN_TURN, "limit": 1}

    def count(self, op: Count) -> Command:
        """The aggregate that counts the items of this queue."""
        pipeline = [{"$match": {"queue": queue_of(op)}}, {"$count": "items"}]
        return {"aggregate": self.collection, "pipeline": pipeline, "cursor": {}} | self._reading

    def page(self, prefix: str, after: str, limit: int) -> Command:
        """The find for documents that may be worth showing, in the order of their keys, from the prefix on."""
        query = {
            "_id": {"$gt": after, "$gte": prefix},
            "state": {"$exists": True},
            "$expr": {"$gt": ["$forget", "$$now"]},
        }
        return self._find(query, ENTRY) | {"sort": {"_id": 1}, "limit": limit}

    def _find(self, query: dict[str, Any], fields: dict[str, Any]) -> Command:
        find = {"find": self.collection, "filter": query, "projection": fields, "let": self._let()}
        return find | {"singleBatch": True, "batchSize": 100_000} | self._reading

    def _let(self) -> Variables:
        """The variables that all ops of a command share. The TTL index does not know an injected clock."""
        now = NOW if self._clock is None else Int64(round(self._clock() * US))
        return {"now": now, "sweeps": self._clock is None}

    def _pipeline(self, op: Op) -> Pipeline:
        return MARK_INSIDE if self.transaction and type(op) is Mark else plan_of(op).pipeline

    def _variables(self, op: Op) -> tuple[Variables, str]:
        plan = plan_of(op)
        variables = plan.variables(op)
        if not plan.named:
            return variables, ""
        number = next(self._numbers)
        # A client gets no hint of what it did itself, unless that happens only at the commit.
        variables["by"] = name = f"{self.client}{'+' if self.transaction else ''}/{number}"
        if type(op) is Push:
            variables["serial"] = Int64(number)  # the order of those that one client pushes in one ms
        return variables, name

    # -- what is there besides documents

    def indexes(self) -> Command:
        """Creates what is missing: the TTL index, and two for queues."""
        items = {"partialFilterExpression": {"queue": {"$gt": ""}}}
        purge, queue, taken = INDEXES
        return {
            "createIndexes": self.collection,
            "indexes": [
                {"name": purge, "key": {"purge": 1}, "expireAfterSeconds": 0},
                {"name": queue, "key": {"queue": 1} | _IN_TURN, **items},
                {"name": taken, "key": {"queue": 1, "owner": 1}, **items},
            ],
        }
