"""Promises about kinds of keys: which ops each accepts, and that only readable values are written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from ...dead_letters.flow import letter
from ...errors import InvalidInput
from ...formats import write_breaker, write_watermark
from ...kinds import KINDS, OF_THE_SERVICE, allowed
from ...model import State, item_key
from ...ops import OPS, Ack, Acquire, Advance, Finish, Mark, Op, Push, Read, Return, Take
from ...rules import MAX_KEPT
from ..harness import Harness, fresh

_FAILURE = b'%020d 0000000002 {"attempts":2,"last_error":"E","last_at":"2025-01-01T00:00:00+00:00","mark":0}'
_SENT = b'{"sent": 1, "last": "2025-01-01T00:00:00+00:00", "fence": 7}'
_LETTER = letter("group", {"id": 1}, error="E", at=datetime(2025, 1, 1, tzinfo=UTC), key="k").payload
_RUN = (
    b'00001800000000000 {"tick":0,"next":1,"opens":1,"began":0,"took":0.5,"outcome":"","by":"","plan":"@every 60s",'
    b'"missed":0}'
)
_DEEP = b"j" + b"[" * 10**5
_OWNER = b"0123456789abcdef" * 2

# Values that each kind accepts, and values that it refuses.
_READABLE: dict[str, tuple[bytes, ...]] = {
    "claim": (b"b\0\xff", b"b", b'j{"a":[1,null]}', b"j1", b'f["ValueError","no"]', b"twhy", b"t", b'j"\\u00e9"'),
    "reservation": (b"",),
    "sent": (_SENT,),
    "trial": (b"",),
    "breaker": (write_breaker(1, 0), write_breaker(10**12 - 2, 9999)),
    "watermark": (write_watermark(-7), write_watermark(2**63 - 1), write_watermark(datetime(2025, 1, 1, tzinfo=UTC))),
    "fence": (b"%019d" % 1, b"%019d" % (2**63 - 1)),
    "letter": (_FAILURE % 1,),
    "tick": (_RUN,),
    "schedule": (_RUN,),
}
_UNREADABLE: dict[str, tuple[bytes, ...]] = {
    "claim": (
        b"",
        b"x",
        b"\0",
        b"j",
        b"j{",
        b"j\xff",
        b"f1",
        b'f["one"]',
        b"f[1,2]",
        b'j"\\ud800"',
        _DEEP,
    ),
    "reservation": (b"\0", b"quiet"),
    "sent": (b"", b"{}", b"[]", b"null", _SENT + b"!", _SENT.replace(b"1,", b"true,", 1), _SENT.replace(b"2025", b"x")),
    "trial": (b"won",),
    "breaker": (b"", b"1.0", b"%012d" % 1, b"%012d.%05d" % (1, 0), write_breaker(10**12 - 1, 0), b"-00000000001.0000"),
    "watermark": (b"", b"i", b"i7", b"zzz", b"i%020d" % 2**64, b"i-0000000000000000007", b"t2025", b"t", b"\xff" * 21),
    "fence": (b"", b"7", b"%019d" % 0, b"%019d" % 2**63, b"%020d" % 7),
    "letter": (b"", _FAILURE % 1 + b"!", b"%020d %010d {}" % (1, 1), (_FAILURE % 1)[1:]),
    "tick": (b"", _RUN[1:], _RUN + b"!", b"%017d {}" % 1, _RUN.replace(b"0.5", b"null")),
    "schedule": (b"", b"7", _RUN.replace(b'"missed":0', b'"missed":true')),
    "rerun": (b"", b"{}", b"0000000001 []", b"0000000001 {"),
}


class KindPromises:
    """Which ops and which bytes a key accepts."""

    def test_an_op_is_refused_on_kinds_that_do_not_allow_it_and_changes_nothing(self, store: Harness) -> None:
        for kind in (*KINDS, "nonsense"):
            key = fresh(f"{kind}/not-meant")
            before = _filled(store, kind, key)
            for op in OPS:
                if "queue" not in _fields(op) and not allowed(op, kind):
                    with pytest.raises(InvalidInput, match=f"{op.__name__.lower()}.*{kind}") as refused:
                        store.one(_sample(op, key))
                    assert refused.value.key == key
            assert before is None or store.one(Read(key)) == before

    def test_an_op_is_performed_on_the_kinds_that_allow_it(self, store: Harness) -> None:
        for kind in KINDS.keys() - OF_THE_SERVICE:
            for op in OPS:
                if "queue" not in _fields(op) and allowed(op, kind):
                    store.one(_sample(op, fresh(f"{kind}/meant"), _READABLE.get(kind, (b"",))[0]))

    def test_a_batch_with_an_op_that_its_kind_does_not_allow_is_not_performed_at_all(self, store: Harness) -> None:
        first, last = fresh("lock/first"), fresh("mark/last")
        for wrong in (Advance(first, write_watermark(1)), Advance(fresh("watermark/x"), b"zzz"), Mark(first, "o", 10)):
            with pytest.raises(InvalidInput):
                store.perform(Acquire(first, "o", 10), wrong, Mark(last, "o", 10))
        assert store.one(Read(first)).state is store.one(Read(last)).state is State.FREE

    def test_readable_bytes_are_kept(self, store: Harness) -> None:
        for kind, values in _READABLE.items():
            for value in values:
                assert _write(store, fresh(f"{kind}/readable"), value) == value

    def test_unreadable_bytes_are_refused_and_change_nothing(self, store: Harness) -> None:
        for kind, values in _UNREADABLE.items():
            key = fresh(f"{kind}/unreadable")
            for value in (*values, b"b" * (MAX_KEPT + 1)):
                with pytest.raises(InvalidInput, match=kind):
                    _write(store, key, value)
            assert store.one(Read(key)).value is None

    def test_a_queue_accepts_its_own_payloads(self, store: Harness) -> None:
        part = fresh("jobs")
        meant = {
            f"queue:{part}": (_OWNER + b'j{"id":1}', _OWNER + b"b\xff"),
            f"dead:{part}": (_LETTER.replace(b'"group":"group"', b'"group":"%b"' % part.encode()),),
            part: (b"", b"\0\xff"),
        }
        for queue, payloads in meant.items():
            for payload in payloads:
                id = fresh("id")
                assert store.one(Push(queue, id, payload)) is True
                assert store.one(Read(item_key(queue, id))).value == payload

    def test_a_queue_refuses_payloads_that_its_consumers_cannot_read(self, store: Harness) -> None:
        part = fresh("jobs")
        refused = {
            f"queue:{part}": (b"", _OWNER, _OWNER + b"x", _OWNER + b"j{", _OWNER + _DEEP),
            f"dead:{part}": (b"", b"{}", b"[]", _LETTER, b'{"bytes":7}', b"\xff"),  # _LETTER belongs to another group
            "audit": (b"", b"{}", b'{"id":"x"}'),
        }
        for queue, payloads in refused.items():
            for payload in (*payloads, b"b" * (MAX_KEPT + 1)):
                with pytest.raises(InvalidInput, match=queue):
                    store.one(Push(queue, "refused", payload))
            assert store.one(Read(item_key(queue, "refused"))).value is None

    def test_nothing_can_be_taken_from_dead_letters_or_the_audit_log(self, store: Harness) -> None:
        taking: list[Op] = [
            op
            for queue in (fresh("dead:group"), "audit")
            for op in (Take(queue, "o", 10), Ack(queue, "x", "o"), Return(queue, "x", "o"))
        ]
        for op in taking:
            with pytest.raises(InvalidInput, match=type(op).__name__.lower()):
                store.perform(op)


def _fields(op: Any) -> tuple[str, ...]:
    return op._fields  # type: ignore[no-any-return]


def _sample(op: Any, key: str, value: bytes = b"") -> Any:
    """Returns an op of this type on this key."""
    fields = {"key": key, "owner": fresh("owner"), "successor": fresh("heir"), "ttl": 10.0, "keep": 10.0,
              "value": value, "fence": 1, "reason": "why", "limit": 1, "per": 10.0}  # fmt: skip
    return op(*(fields[name] for name in op._fields if name not in op._field_defaults))


def _filled(store: Harness, kind: str, key: str) -> Any:
    """Writes something under the key, if its kind allows that, and returns the entry."""
    for op in (Acquire, Mark, Advance):
        if allowed(op, kind) and kind not in OF_THE_SERVICE:
            store.one(_sample(op, key, _READABLE.get(kind, (b"",))[0]))
    return store.one(Read(key)) if allowed(Read, kind) else None


def _write(store: Harness, key: str, value: bytes) -> bytes | None:
    """Writes the value in the way that the key's kind allows, and returns the value that is kept."""
    if allowed(Advance, key.partition("/")[0]):
        return store.one(Advance(key, value)).value
    owner = fresh("owner")
    store.one(Acquire(key, owner, 0.001))
    return store.one(Finish(key, owner, value, 10)).value
