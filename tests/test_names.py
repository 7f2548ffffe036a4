"""Reserved names: to which application a stored key or a queue belongs, whatever the kind."""

from __future__ import annotations

import pytest

from solely.dead_letters.flow import queue_of as letters_of
from solely.dead_letters.flow import reads
from solely.model import item_key
from solely.names import AUDIT, owner_of, owner_of_op, owner_of_queue, part_of, reserved
from solely.ops import Push, Read, Take
from solely.queues.flow import queue_of

OURS = reserved("alerts", "a/b")
KINDS = (
    "lock", "mark", "claim", "reservation", "hits", "sent", "group", "limit", "watermark", "breaker", "fence",
)  # fmt: skip


def test_a_name_begins_with_a_tilde_and_the_application() -> None:
    assert OURS == "~alerts/a/b"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_key_belongs_to_who_has_its_name(kind: str) -> None:
    assert owner_of(f"{kind}/{OURS}") == "alerts"
    assert owner_of(f"{kind}/alerts/~x") == ""
    assert owner_of(f"{kind}/x~alerts/a") == ""


def test_so_do_the_keys_that_are_derived_from_a_name() -> None:
    assert owner_of(f"trial/{OURS}@3.1") == "alerts"
    assert owner_of(f"failures/{OURS}@2") == "alerts"
    for queue in (queue_of(OURS), letters_of(OURS)):
        assert owner_of(item_key(queue, "~other/x")) == "alerts"
        assert owner_of(f"replay/{item_key(queue, 'x')}") == "alerts"
        assert owner_of_queue(queue) == "alerts"
    assert [owner_of(read.key) for read in reads(OURS, ["a"])] == ["alerts", "alerts"]


def test_an_id_or_a_queue_that_only_contains_it_is_anybodys() -> None:
    assert owner_of(item_key(queue_of("jobs"), "~alerts/x")) == ""
    assert owner_of(item_key(queue_of("jobs/~alerts"), "x")) == ""
    assert owner_of(item_key(queue_of("queue:~alerts"), "x")) == ""


def test_the_audit_log_belongs_to_nobody_else() -> None:
    assert owner_of(item_key(AUDIT, "x")) == owner_of_queue(AUDIT) == AUDIT
    assert owner_of_queue(queue_of(AUDIT)) == ""


def test_an_op_is_about_its_key_or_its_queue() -> None:
    assert owner_of_op(Read(f"lock/{OURS}")) == "alerts"
    assert owner_of_op(Take(queue_of(OURS), "me", 1.0)) == "alerts"
    assert owner_of_op(Push(queue_of("jobs"), OURS, b"")) == ""


def test_a_tilde_alone_is_reserved_too() -> None:
    assert owner_of("lock/~") == "~"
    assert owner_of("lock/~x") == "x"


def test_no_two_lists_of_parts_share_a_key() -> None:
    texts = ("a/b", "a", "b", "a%2Fb", "~", "%7E", "", "ä" * 300, "ä" * 301, "x" * 200, "x" * 201)
    assert len({part_of(text) for text in texts}) == len(texts)
    assert all("/" not in part_of(text) and len(part_of(text)) <= 200 for text in texts)
    assert part_of("cpu_usage-1.5") == "cpu_usage-1.5"
