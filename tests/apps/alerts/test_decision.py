"""One table decides whether a notification is sent: which reason applies first, for alerts and for what waits."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from solely.apps.alerts.decision import SEND, Decision, Facts, decide

FIRING: dict[str, tuple[dict[str, Any], Decision]] = {  # in the order in which they apply
    "sent": ({"sent": True}, Decision("sent")),
    "silenced": ({"silenced": 60.0}, Decision("silenced", 60.0)),
    "no_publisher": ({"wanted": False}, Decision("no_publisher")),
    "quiet": ({"window": "quiet", "window_left": 300.0}, Decision("quiet", 300.0)),
    "acknowledged": ({"acknowledged": 50.0}, Decision("acknowledged", 50.0)),
    "flapping": ({"flapping": 40.0}, Decision("flapping", 40.0)),
}
RESOLVED: dict[str, tuple[dict[str, Any], Decision]] = {
    "sent": ({"sent": True}, Decision("sent")),
    "grouped": ({"others_fire": True}, Decision("grouped")),
    "not_firing": ({"opened": False}, Decision("not_firing")),
    "quiet": ({"window": "quiet", "window_left": 300.0}, Decision("quiet", 300.0)),
}
ORDERS = [(True, FIRING), (False, RESOLVED)]


@pytest.mark.parametrize(("firing", "table"), ORDERS, ids=["firing", "resolved"])
def test_each_reason_alone_suppresses_it_and_none_sends_it(firing: bool, table: Any) -> None:
    assert decide(Facts(firing)) == SEND
    for facts, decision in table.values():
        assert decide(Facts(firing, **facts)) == decision


@pytest.mark.parametrize(("firing", "table"), ORDERS, ids=["firing", "resolved"])
def test_of_two_reasons_the_first_is_given(firing: bool, table: Any) -> None:
    for first, second in combinations(table, 2):
        facts = {**table[first][0], **table[second][0]}
        assert decide(Facts(firing, **facts)) == table[first][1], (first, second)


@pytest.mark.parametrize("reason", ["silenced", "no_publisher", "acknowledged", "flapping"])
def test_what_suppresses_a_firing_alert_does_not_suppress_its_resolution(reason: str) -> None:
    assert decide(Facts(False, **FIRING[reason][0])) == SEND


@pytest.mark.parametrize(("window", "reason"), [("reserved", "grouped"), ("quiet", "grouped"), ("limited", "limited")])
def test_the_window_of_a_group_is_shared_and_its_limit_is_a_limit(window: str, reason: str) -> None:
    assert decide(Facts(True, group=True, window=window, window_left=9.0)) == Decision(reason, 9.0)
    assert decide(Facts(True, window=window, window_left=9.0)) == Decision(window, 9.0)
    assert decide(Facts(False, group=True, window=window)) == Decision(window)


def test_a_resolution_waits_for_a_firing_notification_that_is_queued() -> None:
    assert decide(Facts(False, opened=False, firing_queued=True)) == Decision("firing_queued")


def test_an_alert_that_was_not_in_its_group_does_not_resolve_it() -> None:
    assert decide(Facts(False, group=True, others_fire=True, was_firing=False)) == Decision("not_firing")


def test_a_reason_that_ends_this_moment_still_applies() -> None:
    assert decide(Facts(True, silenced=0.0)) == Decision("silenced")
    assert decide(Facts(True, acknowledged=0.0)) == Decision("acknowledged")
