"""Storms of alerts over HTTP, to four workers that share a store: one notification, and every sender is answered."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from tests.apps.alerts.fleet import PATIENT, POST, WEBHOOK, Fleet, alert, fleet, group, outcomes
from tests.apps.fleet import SOON, WORKERS
from tests.apps.volley import Answer, Request
from tests.conftest import STORES
from tests.service.serving import until

SHARED = [name for name in ("sqlite", "valkey", "postgres") if name in STORES]
MANY = pytest.mark.parametrize("running", [name for name in SHARED if name != "sqlite"], indirect=True)

# The load: a busy hour of a hundred alerts in some seconds.
FINGERPRINTS = [f"load-{number}" for number in range(100)]
SEVERITIES = ("critical", "warning", "info")
REPEATS = 4  # of each alert in a burst
OVER, AGAIN = FINGERPRINTS[:50], FINGERPRINTS[:25]  # which are resolved, and fire again after that
AT_ONCE = 64

Kind = tuple[str, str, str]  # fingerprint, severity, status


@pytest.fixture(scope="module", params=SHARED)
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    url = f"sqlite:///{folder / 'store.db'}" if request.param == "sqlite" else STORES[request.param](request)
    with fleet(url, folder, PATIENT) as it:
        yield it


def assert_one_of(answers: Sequence[Answer]) -> None:
    """One was published; all others were suppressed, since it was being published or had been."""
    found = outcomes(answers)
    assert found.pop(("published", "")) == 1
    assert sum(found.values()) == len(answers) - 1
    assert set(found) <= {("suppressed", "reserved"), ("suppressed", "quiet")}


def test_of_ten_at_once_one_is_sent(running: Fleet) -> None:
    for turn in range(5):
        assert_one_of(running.volley([(POST, alert(f"ten-{turn}"))] * 10, at_once=10))
        assert len(running.inbox.of(f"ten-{turn}")) == 1
    assert running.inbox.forged == 0


@MANY
@pytest.mark.parametrize("path", [POST, WEBHOOK])
def test_of_a_thousand_at_once_one_is_sent(running: Fleet, path: str) -> None:
    name = f"thousand-{path}"
    body = alert(name) if path == POST else group((name, "critical", "firing"))
    assert_one_of(running.volley([(path, body)] * 1_000, at_once=1_000))
    assert len(running.inbox.of(name)) == 1


@MANY
def test_a_thousand_in_groups_that_overlap_are_sent_once_each(running: Fleet) -> None:
    names = [f"grouped-{number}" for number in range(20)]
    groups = [group(*((name, "warning", "firing") for name in names))] * 50
    found = outcomes(running.volley([(WEBHOOK, body) for body in groups], at_once=50))
    assert found[("published", "")] == len(names)
    assert sum(found.values()) == 1_000
    assert [len(running.inbox.of(name)) for name in names] == [1] * len(names)


# -- load


def bursts(kinds: Sequence[Kind], chance: random.Random) -> list[Request]:
    """Each of these some times over, in bursts that mix; a third comes in groups, as Alertmanager sends them."""
    sent: list[Request] = []
    order = [kind for kind in kinds for _ in range(REPEATS)]
    chance.shuffle(order)
    while order:
        size = chance.choice((1, 1, 6))
        taken, order = order[:size], order[size:]
        sent += [(WEBHOOK, group(*taken))] if size > 1 else [(POST, alert(*taken[0]))]
    return sent


@MANY
def test_under_load_each_window_is_sent_once_and_the_figures_add_up(running: Fleet) -> None:
    chance = random.Random(6)
    expected: Counter[Kind] = Counter()
    for names, status, new in (
        (FINGERPRINTS, "firing", FINGERPRINTS),
        (OVER, "resolved", OVER),
        (AGAIN, "firing", AGAIN),
        (AGAIN + FINGERPRINTS[len(OVER) :], "firing", []),
    ):
        severities = SEVERITIES if status == "firing" else SEVERITIES[:1]
        requests = bursts([(name, severity, status) for name in names for severity in severities], chance)
        running.volley(requests, AT_ONCE)
        # Copies that suppressed ones left are looked at, and dropped; what another worker took over is sent. A resolved
        # notification that still waits would be withdrawn by the alert that fires again.
        until(lambda: not running.waiting(), 4 * SOON)
        expected += Counter((name, severity, status) for name in new for severity in severities)
    sent = running.inbox.distinct("fingerprint", "severity", "status")
    assert Counter({kind: len(ids) for kind, ids in sent.items() if "load" in kind[0]}) == expected
    assert len({running.publishing_worker(each) for each in running.inbox.deliveries[-200:]}) == WORKERS, (
        "not all took part"
    )
    wanted = figures(running)
    assert counted(running, wanted) == wanted


def figures(running: Fleet) -> dict[str, int]:
    """What the workers must have counted, by all that was ever answered and sent."""
    by_outcome: Counter[str] = Counter()
    by_reason: Counter[str] = Counter()
    for (outcome, reason), times in running.answered.items():
        by_outcome[outcome] += times
        by_reason[reason] += times if outcome == "suppressed" else 0
    return {
        "received": by_outcome.total(),
        "published": len(running.inbox.deliveries),
        "queued": by_outcome["queued"],
        "reserved": by_reason["reserved"],
        "quiet": by_reason["quiet"],
        "not_firing": by_reason["not_firing"],
        "collisions": by_reason["reserved"],
        "lock_failures": 0,
    }


def counted(running: Fleet, wanted: dict[str, int]) -> dict[str, int]:
    """What they have counted, once that is what is wanted, or after a while: they tell each other every second."""
    ends = time.monotonic() + SOON
    while True:
        found = running.counters()
        if {name: found[name] for name in wanted} == wanted or time.monotonic() > ends:
            return {name: found[name] for name in wanted}
        time.sleep(0.1)
