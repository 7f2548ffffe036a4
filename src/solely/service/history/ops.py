"""What an op of a remote client (`POST /v1/ops`) did, for the history: such a client runs the library elsewhere, so its
events are not seen here."""

from __future__ import annotations

from ...errors import StoreError
from ...events import Cleared, Event, Limited, Marked
from ...holder import who_of
from ...kinds import kind_of
from ...model import DONE, HELD, Allowance, Entry, LeasedItem, Released, item_key
from ...ops import Ack, Acquire, Clear, Finish, Hit, Mark, Op, Push, Release, Renew, Reply, Resume, Return, Take
from .journal import EventHistory

_WON = {"lock": "acquired", "claim": "claimed", "reservation": "reserved", "tick": "acquired"}
_FINISHED = {"claim": "published", "reservation": "recorded", "tick": "finished"}


def note_op(history: EventHistory, op: Op, reply: Reply | StoreError) -> None:
    """Records what the op changed, or that it was refused; nothing for reads and for what only waits."""
    event = _event(op, reply)
    if event is not None:
        history.emit(event)
    elif isinstance(op, Acquire):
        _note_acquire(history, op, reply)
    elif isinstance(op, Renew):
        if isinstance(reply, Entry) and reply.owner == op.owner and kind_of(op.key) in _WON:
            history.note(op.key, "renewed", reply.fence, left=reply.left)
    elif isinstance(op, Resume):
        if isinstance(reply, Entry) and reply.owner == op.successor:
            history.note(op.key, "resumed", reply.fence, left=op.ttl)
    elif isinstance(op, Finish):
        if isinstance(reply, Entry) and (word := _FINISHED.get(kind_of(op.key))):
            history.note(op.key, word, reply.fence, **{"superseded": True} if reply.owner != op.owner else {})
    elif isinstance(op, Release):
        if isinstance(reply, Released) and op.fence and kind_of(op.key) in _WON:
            history.note(op.key, "released_lease", op.fence, outcome=reply.value)
    elif isinstance(op, Push | Take | Ack | Return):
        _note_item(history, op, reply)


def _event(op: Op, reply: Reply | StoreError) -> Event | None:
    """The event of the library that says the same."""
    if isinstance(op, Mark) and isinstance(reply, bool):
        return Marked(op.key, reply)
    if isinstance(op, Hit) and isinstance(reply, Allowance):
        return Limited(op.key, reply.allowed)
    return Cleared(op.key, op.fence, op.reason) if isinstance(op, Clear) and reply is True else None


def _note_acquire(history: EventHistory, op: Acquire, reply: Reply | StoreError) -> None:
    kind = kind_of(op.key)
    if not isinstance(reply, Entry) or kind not in _WON:
        return
    if reply.owner == op.owner and reply.state is HELD:
        history.note(op.key, _WON[kind], reply.fence, left=op.ttl, attempts=reply.attempts)
    elif kind == "reservation":
        reason = "quiet" if reply.state is DONE else "reserved"
        history.note(op.key, "suppressed", reply.fence, reason=reason, retry_after=reply.left)
    elif reply.state is DONE:
        history.note(op.key, "replayed", reply.fence)
    elif kind != "tick":  # replicas of a schedule try at every tick, and all but one are refused
        history.note(op.key, "refused", reply.fence, holder=who_of(reply.info))


def _note_item(history: EventHistory, op: Push | Take | Ack | Return, reply: Reply | StoreError) -> None:
    if isinstance(op, Take):
        if isinstance(reply, LeasedItem):
            facts = {"left": op.ttl, "attempts": reply.attempts}
            history.note(item_key(op.queue, reply.id), "taken", reply.fence, **facts)
    elif reply is True:
        word = "pushed" if isinstance(op, Push) else "acked" if isinstance(op, Ack) else "given_back"
        history.note(item_key(op.queue, op.id), word, op.fence if isinstance(op, Ack) else 0)
