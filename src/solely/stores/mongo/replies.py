"""Documents as replies: what an op is answered with, read from the document by the reference's own `view`."""

from __future__ import annotations

from typing import Any

from ...model import DONE, FREE, LOST, RELEASED, Allowance, Entry, Gone, LeasedItem, NoItem, Released, State
from ...ops import Ack, Acquire, Amend, Clear, Finish, Hit, Mark, Push, Release, Renew, Resume, Return, Take, Unhit
from .. import transitions as t
from ..batches import queue_of

Document = dict[str, Any]

_SOMEBODY = t.QueuedClient("", "")


def _record(document: Document) -> t.StoredRecord:
    """The record that the document keeps. Its waiters are only counted; an item's payload may have been left out."""
    record = t.StoredRecord()
    record.state = State(document["state"])
    record.owner = document["owner"]
    record.fence = int(document["fence"])  # a plain int, not the bson type that remembers its width
    record.until, record.delay, record.opens = document["until"], document["delay"], document["opens"]
    record.attempts, record.refused, record.kept = document["attempts"], document["refused"], document["kept"]
    record.fingerprint, record.info = document["fingerprint"], document["info"]
    record.value = document.get("value")
    if record.value is None and document.get("queue"):
        record.value = b""
    record.waiters = [_SOMEBODY] * document["waiting"]
    record.gone = _gone(document)
    return record


def _gone(document: Document) -> list[t.Displaced]:
    return [t.Displaced(d["owner"], d["fence"], d["how"], d["until"]) for d in document["gone"]]


def _displaced(document: Document, owner: str) -> t.Displaced | None:
    """How this owner lost the key, if that is remembered."""
    return next((d for d in _gone(document) if d.owner == owner and d.until > document["now"]), None)


def _now(document: Document) -> t.Now:
    return t.Now(document["now"], document["now"])


def entry(key: str, document: Document | None, asker: str = "", *, value: bool = False) -> Entry:
    """The entry as `asker` may see it; free if there is no document, or one that counts hits."""
    if document is None or "state" not in document:
        return Entry(key, FREE)
    return t.view(key, _record(document), _now(document), asker, value=value)


def acquired(op: Acquire, document: Document | None, by: str) -> Entry:
    return entry(op.key, document, op.owner, value=op.value)


def renewed(op: Renew, document: Document | None, by: str) -> Entry:
    return entry(op.key, document, op.owner)


def resumed(op: Resume, document: Document | None, by: str) -> Entry:
    return entry(op.key, document, op.successor, value=True)


def finished(op: Finish, document: Document | None, by: str) -> Entry:
    return entry(op.key, document, op.owner, value=True)


def looked_at(op: Any, document: Document | None, by: str) -> Entry:
    return entry(op.key, document, value=True)


def released(op: Release, document: Document | None, by: str) -> Released:
    """The document outlives what was granted by an hour: if it is as old as that, an owner of which it knows nothing
    was released, by this op or before it."""
    lost = None if document is None else _displaced(document, op.owner)
    if lost is not None:
        if lost.how != Gone.REVOKED:
            return Released(lost.how)
        if lost.fence == op.fence:  # it held the key when it was revoked
            return RELEASED
    return LOST if _is_lost(op.fence, document) else RELEASED


def _is_lost(fence: int, document: Document | None) -> bool:
    """True if what was granted under this fence is none of this document's: it was made anew, or is an older one."""
    if document is None:
        return fence > 0
    return document["fence"] < fence or t.is_lost(fence, document.get("born") or 1)


def marked(op: Mark, document: Document | None, by: str) -> bool:
    seen = entry(op.key, document, op.owner)
    return seen.state is DONE and seen.owner == op.owner and not seen.gone


def cleared(op: Clear, document: Document | None, by: str) -> bool:
    return document is not None and any(
        d.fence == op.fence and d.how == Gone.CLEARED and d.until > document["now"] for d in _gone(document)
    )


def hit(op: Hit, document: Document | None, by: str) -> Allowance:
    assert document is not None, "a Hit makes its document"
    now, per = document["now"], t.us(op.per)
    hits = {hit["owner"]: hit["at"] for hit in document["hits"] if hit["at"] > now - per}
    if op.owner in hits:
        return Allowance(True, len(hits))
    if len(hits) < op.limit:  # refused, but by the time of this look there is room again
        return Allowance(False, len(hits))
    frees = sorted(hits.values())[len(hits) - op.limit]
    return Allowance(False, len(hits), max(0, frees + per - now) / t.US)


def given_back(op: Unhit, before: Document | None, by: str) -> bool:
    return before is not None and any(hit["owner"] == op.owner for hit in before.get("hits", ()))


def pushed(op: Push, document: Document | None, by: str) -> bool:
    return document is not None and document.get("pusher") == by


def taken(op: Take, document: Document | None, by: str) -> LeasedItem | None:
    if document is None:
        return None
    return t.taken(document["_id"][len(queue_of(op)) :], _record(document), _now(document))


def no_item(found: list[Document]) -> NoItem:
    """The reply to a client that waits; `found` is the item that becomes available next, if there is one."""
    return t.no_item(found[0]["available"], _now(found[0])) if found else NoItem(float("inf"))


def acked(op: Ack, document: Document | None, by: str) -> bool:
    if document is None:
        return not _is_lost(op.fence, document)
    lost = _displaced(document, op.owner)
    resumed = lost is not None and lost.how == Gone.RESUMED
    return not (document.get("queue") or resumed or _is_lost(op.fence, document))


def returned(op: Return, before: Document | None, by: str) -> bool:
    return before is not None and bool(before.get("queue")) and t.has(_record(before), op.owner)


def amended(op: Amend, before: Document | None, by: str) -> bool:
    return before is not None and "state" in before and t.amend(_record(before), op, _now(before))


def notified(document: Document | None, by: str) -> list[str]:
    """The clients that the op of this name notified."""
    names = document.get("notified", "").split(" ") if document is not None and by else [""]
    return names[1:] if names[0] == by else []
