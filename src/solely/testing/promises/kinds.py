"""Promises about kinds of keys: which ops each takes, and that nothing is written that nobody could read."""

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
from ..face import Face, fresh

_FAILURE = b'%020d 0000000002 {"attempts":2,"last_error":"E","last_at":"2025-01-01T00:00:00+00:00","mark":0}'
_SENT = b'{"sent": 1, "last": "2025-01-01T00:00:00+00:00", "fence": 7}'
_LETTER = letter("group", {"id": 1}, error="E", at=datetime(2025, 1, 1, tzinfo=UTC), key="k").payload
_DEEP = b"j" + b"[" * 10**5
_OWNER = b"0123456789abcdef" * 2

# What may be written under each kind, and what may not.
_READABLE: dict[str, tuple[bytes, ...]] = {
    "claim": (b"b\0\xff", b"b", b'j{"a":[1,null]}', b"j1", b'f["ValueError","no"]', b"twhy", b"t", b'j"\\u00e9"'),
    "reservation": (b"",),
    "sent": (_SENT,),
    "trial": (b"",),
    "breaker": (write_breaker(1, 0), write_breaker(10**12 - 2, 9999)),
    "watermark": (write_watermark(-7), write_watermark(2**63 - 1), write_watermark(datetime(2025, 1, 1, tzinfo=UTC))),
    "fence": (b"%019d" % 1, b"%019d" % (2**63 - 1)),
    "letter": (_FAILURE % 1,),
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
    "rerun": (b"", b"{}", b"0000000001 []", b"0000000001 {"),
}


class KindPromises:
    """Which ops a key takes, and which bytes."""

    def test_an_op_is_refused_on_kinds_that_it_is_not_meant_for_and_changes_nothing(self, store: Face) -> None:
        for kind in (*KINDS, "nonsense"):
            key = fresh(f"{kind}/not-meant")
            before = _filled(store, kind, key)
            for op in OPS:
                if "queue" not in _fields(op) and not allowed(op, kind):
                    with pytest.raises(InvalidInput, match=f"{op.__name__.lower()}.*{kind}") as refused:
                        store.one(_sample(op, key))
                    assert refused.value.key == key
            assert before is None or store.one(Read(key)) == before

    def test_an_op_is_performed_on_the_kinds_that_it_is_meant_for(self, store: Face) -> None:
        for kind in KINDS.keys() - OF_THE_SERVICE:
            for op in OPS:
                if "queue" not in _fields(op) and allowed(op, kind):
                    store.one(_sample(op, fresh(f"{kind}/meant"), _READABLE.get(kind, (b"",))[0]))

    def test_nothing_of_a_batch_is_performed_if_one_op_is_not_meant_for_its_key(self, store: Face) -> None:
        first, last = fresh("lock/first"), fresh("mark/last")
        for wrong in (Advance(first, write_watermark(1)), Advance(fresh("watermark/x"), b"zzz"), Mark(first, "o", 10)):
            with pytest.raises(InvalidInput):
                store.perform(Acquire(first, "o", 10), wrong, Mark(last, "o", 10))
        assert store.one(Read(first)).state is store.one(Read(last)).state is State.FREE

    def test_bytes_that_can_be_read_are_kept(self, store: Face) -> None:
        for kind, values in _READABLE.items():
            for value in values:
                assert _write(store, fresh(f"{kind}/readable"), value) == value

    def test_bytes_that_cannot_be_read_are_refused_and_change_nothing(self, store: Face) -> None:
        for kind, values in _UNREADABLE.items():
            key = fresh(f"{kind}/unreadable")
            for value in (*values, b"b" * (MAX_KEPT + 1)):
                with pytest.raises(InvalidInput, match=kind):
                    _write(store, key, value)
            assert store.one(Read(key)).value is None

    def test_a_queue_takes_what_it_is_for(self, store: Face) -> None:
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

    def test_a_queue_refuses_what_its_readers_could_not_read(self, store: Face) -> None:
        part = fresh("jobs")
        refused = {
            f"queue:{part}": (b"", _OWNER, _OWNER + b"x", _OWNER + b"j{", _OWNER + _DEEP),
            f"dead:{part}": (b"", b"{}", b"[]", _LETTER, b'{"bytes":7}', b"\xff"),  # that letter is of another group
            "audit": (b"", b"{}", b'{"id":"x"}'),
        }
        for queue, payloads in refused.items():
            for payload in (*payloads, b"b" * (MAX_KEPT + 1)):
                with pytest.raises(InvalidInput, match=queue):
                    store.one(Push(queue, "refused", payload))
            assert store.one(Read(item_key(queue, "refused"))).value is None

    def test_letters_and_the_audit_log_are_not_taken_from(self, store: Face) -> None:
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
    """Such an op on this key."""
    fields = {"key": key, "owner": fresh("owner"), "ttl": 10.0, "keep": 10.0, "value": value, "fence": 1,
              "reason": "why", "limit": 1, "per": 10.0}  # fmt: skip
    return op(*(fields[name] for name in op._fields if name not in op._field_defaults))


def _filled(store: Face, kind: str, key: str) -> Any:
    """What stands under the key after something was put there, if it can be."""
    for op in (Acquire, Mark, Advance):
        if allowed(op, kind) and kind not in OF_THE_SERVICE:
            store.one(_sample(op, key, _READABLE.get(kind, (b"",))[0]))
    return store.one(Read(key)) if allowed(Read, kind) else None


def _write(store: Face, key: str, value: bytes) -> bytes | None:
    """What is kept under the key after this was written there as its kind is."""
    if allowed(Advance, key.partition("/")[0]):
        return store.one(Advance(key, value)).value
    owner = fresh("owner")
    store.one(Acquire(key, owner, 0.001))
    return store.one(Finish(key, owner, value, 10)).value
