"""Policies by severity, as data: defaults, fallback, and what cannot be is refused when the table is made."""

from datetime import timedelta
from typing import Any

import pytest

import solely
from solely import PolicyTable, ReservationPolicy
from tests.client_modes import result_of


async def test_a_reservation_on_the_terms_of_its_severity(once: Any) -> None:
    table = PolicyTable({"critical": {"hold": 10, "quiet": 60, "limit": 1, "per": 3_600}})
    first = await result_of(once.reserve("cpu", **table["critical"].terms))
    assert 8 < first.remaining() < 10
    await result_of(first.record())
    assert abs((await result_of(once.reserve("cpu"))).retry_after - 60) < 0.01
    await result_of(once.expire_reservation("cpu", reason="test"))
    assert (await result_of(once.reserve("cpu", **table["CRITICAL"].terms))).reason == "limited"


def test_the_defaults() -> None:
    table = PolicyTable()
    holds = {severity: table[severity].hold for severity in ("critical", "warning", "info", "")}
    assert holds == {"critical": 10, "warning": 60, "info": 30, "": 30}
    for severity in ("critical", "warning", "info"):
        policy = table[severity]
        assert policy.limit is not None
        assert policy.per == 3_600
        assert policy.terms == {"hold": policy.hold, "quiet": policy.quiet, "limit": policy.limit, "per": 3_600}
    assert table["info"] is table.default


def test_what_is_not_in_the_table_has_the_default() -> None:
    table = PolicyTable({"page": ReservationPolicy(quiet=timedelta(hours=1))}, default=ReservationPolicy(quiet=7))
    assert table["Page"].quiet == timedelta(hours=1)
    assert table["critical"] == ReservationPolicy(quiet=7)


@pytest.mark.parametrize(
    "policy",
    [
        {"hold": 0},
        {"quiet": -1},
        {"limit": 5},
        {"per": 60},
        {"limit": 0, "per": 60},
        {"limit": 10_001, "per": 60},
        {"limit": 5, "per": 0},
        {"colour": "red"},
        {"limit": 2.5, "per": 60},
    ],
)
def test_a_policy_that_cannot_be_is_refused_when_the_table_is_made(policy: dict[str, Any]) -> None:
    with pytest.raises(solely.InvalidInput):
        PolicyTable({"critical": policy})
