"""A batch that is sent in several calls: by portions on one server, by buckets in a cluster. Without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import StoreError, StoreUnavailable, first_error
from .. import Answers
from .codec import Codec, chunks, packed
from .faults import Elsewhere
from .index import Enlist, ListPage, RedisOp
from .queries import Routes
from .replies import decode
from .settings import ServerAddress

ASKING = packed("ASKING")
MOST_ROUNDS = 6  # a slot on the move answers ASK, MOVED and ASK again before a new node knows the script; twice that


class Part:
    """Ops of one bucket, and their places in the batch."""

    __slots__ = ("asking", "bucket", "ops", "places")

    def __init__(self, bucket: int, ops: Sequence[RedisOp], places: Sequence[int]) -> None:
        self.bucket = bucket
        self.ops = ops
        self.places = places
        self.asking: ServerAddress | None = None


class SplitBatch:
    """Collects the answers of all parts, in the order of the ops."""

    def __init__(self, ops: Sequence[RedisOp], codec: Codec) -> None:
        self.answers: Answers = [None] * len(ops)
        self.open = self._parts(ops, codec)  # what is still to be sent
        self.moved = False  # the routes were wrong

    @staticmethod
    def _parts(ops: Sequence[RedisOp], codec: Codec) -> list[Part]:
        if len(codec.bases) > 1:
            by_bucket: dict[int, list[int]] = {}
            for place, op in enumerate(ops):
                by_bucket.setdefault(codec.bucket(op), []).append(place)
            return [
                Part(bucket, [ops[place] for place in portion], portion)
                for bucket, places in by_bucket.items()
                for portion in chunks(places)
            ]
        all_places = range(len(ops))
        return [Part(0, own, places) for own, places in zip(chunks(ops), chunks(all_places), strict=True) if own]

    def groups(self, routes: Routes) -> list[tuple[ServerAddress, list[Part]]]:
        """What goes to which server now. Parts that nobody serves are answered so."""
        groups: dict[tuple[ServerAddress, int], list[Part]] = {}
        for part in self.open:
            address = part.asking or routes[part.bucket]
            if address is None:
                self.put(part, StoreUnavailable("the slot is served by no node of the cluster"))
            else:
                groups.setdefault((address, id(part) if part.asking else 0), []).append(part)
        self.open, self.moved = [], False
        return [(address, parts) for (address, _), parts in groups.items()]

    def put(self, part: Part, raw: Any) -> None:
        """Takes the answer to a part; one that belongs elsewhere becomes open again."""
        found: Answers = [raw] * len(part.ops) if isinstance(raw, StoreError) else decode(part.ops, raw, [])
        first = found[0]
        if isinstance(first, Elsewhere) and first.asking and isinstance(part.ops[0], ListPage | Enlist):
            # There, what has not been moved yet would seem to be gone.
            found = [StoreUnavailable("a slot is being moved to another node just now; list again")] * len(found)
        elif isinstance(first, Elsewhere):
            host, _, port = first.address.rpartition(":")
            part.asking = ServerAddress(host, int(port)) if first.asking and host else None
            self.moved = self.moved or not first.asking
            self.open.append(part)
        for place, answer in zip(part.places, found, strict=True):
            self.answers[place] = answer

    def failures(self) -> list[StoreError]:
        if first_error(StoreError, self.answers) is None:
            return []
        return [answer for answer in self.answers if isinstance(answer, StoreError)]


def calls(parts: list[Part], codec: Codec) -> list[bytes]:
    """What to send for these parts; an ASKING comes before the one it is for."""
    commands = [codec.command(part.ops, part.bucket) for part in parts]
    return [ASKING, *commands] if parts[0].asking else commands
