"""States by thresholds, results refused by their fence, uptime in sums, retention: on both databases."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from solely.apps.probes import history as module
from solely.apps.probes.history import ProbeHistory, Turn
from solely.apps.probes.model import ProbeResult, ProbeTarget
from solely.apps.probes.targets import Targets
from solely.data import DAY, HOUR, Database
from solely.errors import InvalidInput

WEB = ProbeTarget(name="web", url="https://shop.example/", failure_threshold=3, success_threshold=2)
_fences = itertools.count(1)


def result(passed: bool, fence: int = 0, **given: Any) -> ProbeResult:
    error = "" if passed else "status 503 is not 2xx"
    base = {"target": "web", "url": WEB.url, "at": time.time(), "passed": passed, "error": error, "seconds": 0.25}
    return ProbeResult(**{**base, "fence": fence or next(_fences), **given})


async def settled(
    history: ProbeHistory, passed: bool, target: ProbeTarget = WEB, **given: Any
) -> tuple[str, list[Turn]]:
    """The state after one more result, and what people have to be notified of."""
    history.add(target, result(passed, **given))
    news = await history.flush()
    return (await history.states())[target.name].state, news


async def test_a_target_goes_down_and_up_after_so_many_results_in_a_row(data: Database) -> None:
    history = ProbeHistory(data)
    seen = [
        (await settled(history, passed))[0] for passed in (True, True, False, False, False, True, False, True, True)
    ]
    assert seen == ["PENDING", "UP", "PENDING", "PENDING", "DOWN", "DOWN", "DOWN", "DOWN", "UP"]


async def test_only_down_and_up_again_are_news_and_each_once(data: Database) -> None:
    history = ProbeHistory(data)
    told: list[str] = []
    for passed in (True, True, False, True, True, False, False, False, False, True, True, True):
        _, news = await settled(history, passed)
        for turn in news:
            told.append(turn.state)
            await history.announced(turn)
    assert told == ["DOWN", "UP"]


async def test_an_announcement_that_a_dead_worker_owes_is_found(
    data: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, quick = ProbeHistory(data), ProbeTarget(name="web", url=WEB.url, failure_threshold=1)
    _, news = await settled(history, False, quick)
    assert [turn.state for turn in news] == ["DOWN"]
    assert await history.unannounced() == []  # the worker that found it may still be at it
    monkeypatch.setattr(module, "_LATE", 0.0)
    (owed,) = await history.unannounced()
    assert (owed.target, owed.state, owed.error) == ("web", "DOWN", "status 503 is not 2xx")
    await history.announced(owed)
    assert await history.unannounced() == []


async def test_a_result_with_an_older_fence_changes_no_state_and_counts_once(data: Database) -> None:
    late: list[int] = []
    history = ProbeHistory(data, on_late=lambda: late.append(1))
    for fence in (100, 200):
        await settled(history, True, fence=fence)
    before = await history.states()
    for _ in range(2):  # a write whose reply was lost is repeated
        assert (await settled(history, False, fence=150)) == ("UP", [])
        await settled(history, False, fence=200)
    assert await history.states() == before
    assert [(each.fence, each.passed) for each in await history.results("web")] == [
        (200, True),
        (150, False),
        (100, True),
    ]
    assert (await history.uptimes("24h"))["web"].share == pytest.approx(2 / 3)
    assert len(late) == 4


async def test_several_results_of_a_target_in_one_flush_are_applied_in_their_order(data: Database) -> None:
    history = ProbeHistory(data)
    others = [ProbeTarget(name=f"other-{number}", url=f"https://{number}.example/") for number in range(20)]
    for passed in (True, True, False):
        for target in (WEB, *others):
            history.add(target, result(passed))
    await history.flush()
    states = await history.states()
    assert {states[target.name].state for target in others} == {"PENDING"}
    assert states["web"].state == "PENDING"
    assert [each.passed for each in await history.results("other-7")] == [False, True, True]
    names = ["web", *(each.name for each in others)]
    assert len(await history.bars(2, names)) == 21
    found = await history.bars(2, ["web"])
    assert [each.passed for each in found.pop("web")] == [True, False]
    assert found == {}


async def test_uptime_is_the_share_of_samples_and_skipped_probes_are_none(data: Database) -> None:
    history = ProbeHistory(data)
    for passed, at in ((True, 0), (True, HOUR), (False, 2 * HOUR), (True, 3 * DAY), (False, 40 * DAY)):
        history.add(WEB, result(passed, at=time.time() - at, seconds=0.5))
    history.add(WEB, result(False, skipped="locked"))
    history.add(WEB, result(False, skipped="lost"))
    await history.flush()
    shares = [(await history.uptimes(span))["web"].share for span in ("24h", "30d", "1y")]
    assert shares == [pytest.approx(2 / 3), pytest.approx(3 / 4), pytest.approx(3 / 5)]
    assert (await history.uptimes("24h"))["web"].seconds == pytest.approx(0.5)
    assert [(each.up, each.down) for each in await history.hourly("web", "24h")] == [(0, 1), (1, 0), (1, 0)]
    assert len(await history.hourly("web", "1y")) >= 3


async def test_what_is_too_old_is_deleted_and_its_sums_stay_longer(data: Database) -> None:
    history = ProbeHistory(data)
    for age in (0, 2 * DAY, 40 * DAY, 500 * DAY):
        history.add(WEB, result(True, at=time.time() - age))
    await history.flush()
    await history.sweep(DAY, 31 * DAY, 400 * DAY)
    assert len(await history.results("web")) == 1
    assert len(await history.hourly("web", "30d")) == 2
    assert len(await history.hourly("web", "1y")) == 3


async def test_results_wait_for_a_database_that_is_away_and_only_so_many(
    data: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[int] = []
    history = ProbeHistory(data, on_drop=lambda: dropped.append(1))
    monkeypatch.setattr(module, "MOST", 2)
    for _ in range(3):
        history.add(WEB, result(True))
    assert len(dropped) == 1
    broken = module.STATEMENTS.text("settle", data.dialect)
    monkeypatch.setitem(module.STATEMENTS._complete, ("settle", data.dialect), "SELECT of nothing")
    with pytest.raises(Exception, match="SELECT of nothing"):
        await history.flush()
    monkeypatch.setitem(module.STATEMENTS._complete, ("settle", data.dialect), broken)
    await history.flush()
    assert len(await history.results("web")) == 2


async def test_targets_pauses_and_windows_are_seen_by_all_workers(data: Database) -> None:
    here, there = Targets(data, [WEB]), Targets(data, [WEB])
    added = ProbeTarget(name="api", url="https://api.example/", headers={"X-Key": "k"})
    await here.add(added, "ann")
    await here.pause("web", "ann", "it is moved")
    await there.refresh()
    assert (there.find("api"), list(there.all), list(there.due())) == (added, ["api", "web"], ["api"])
    window = await there.add_window(["api"], time.time() - 1, time.time() + 60, "bob", "new disks")
    await here.refresh()
    assert (here.window("api"), list(here.due())) == (window, [])
    assert await here.end_window(window.id)
    assert not await here.end_window(window.id)
    assert await here.resume("web")
    assert not await here.resume("web")
    await there.refresh()
    assert list(there.due()) == ["api", "web"]
    assert await there.remove("api")
    assert not await there.remove("api")


async def test_a_target_of_the_settings_is_changed_there_alone(data: Database) -> None:
    targets = Targets(data, [WEB])
    for change in (targets.add(WEB, "ann"), targets.remove("web")):
        with pytest.raises(InvalidInput, match="is in the settings"):
            await change
    with pytest.raises(InvalidInput, match="there is no target 'nowhere'; known are web"):
        await targets.add_window(["nowhere"], time.time(), time.time() + 60, "ann", "why")
    with pytest.raises(InvalidInput, match="the window must end after it starts"):
        await targets.add_window([], time.time(), time.time() - 60, "ann", "why")
