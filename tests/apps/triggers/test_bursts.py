"""Same idempotency key, same run id, always: in bursts over four processes that trip the gate while the key is in
flight."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.triggers.fleet import KEYED, TRIPS, UNKEYED, Burst, Fleet, fleet
from tests.conftest import in_schema, isolated

RECOVERY = 2.0  # seconds without triggers: longer than the window and the hold of the gate together


def place(kind: str, request: pytest.FixtureRequest, folder: Path) -> tuple[str, str]:
    """The URLs of a store and of a database of this kind."""
    if kind == "sqlite":
        return f"sqlite:///{folder / 'store.db'}", f"sqlite:///{folder / 'history.db'}"
    return isolated(request.getfixturevalue("valkey_url")), in_schema(request.getfixturevalue("postgres").url)


@pytest.fixture(scope="module", params=("redis_postgres", "sqlite"))
def it(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    store, data = place(request.param, request, folder)
    with fleet(store, folder, data, TRIPS) as running:
        yield running


def check_one_run(it: Fleet, key: str, burst: Burst) -> None:
    """All answers have one run id, it has one row, every other trigger has its own, and no accepted id is unknown."""
    assert burst.statuses == {200: KEYED + UNKEYED}
    (id,) = burst.ids
    assert sum(not answer.body["isCached"] for answer in burst.keyed) == 1
    others = {answer.body["id"] for answer in burst.others}
    assert len(others) == UNKEYED
    assert it.run(id)["id"] == id
    it.until_drained()
    assert [row["id"] for row in it.rows(key)] == [id]
    assert others <= {row["id"] for row in it.rows()}


def test_500_triggers_of_a_key_mixed_with_others_get_one_run_id(it: Fleet) -> None:
    for key in ("one", "two"):
        burst = it.burst(key)
        check_one_run(it, key, burst)
        assert any(answer.body["buffered"] for answer in burst.others), "the others did not trip the gate"


@pytest.mark.only_with_all
@pytest.mark.timeout(900)
def test_500_triggers_of_a_key_get_one_run_id_20_times_in_a_row(it: Fleet) -> None:
    for round in range(20):
        check_one_run(it, f"key-{round}", it.burst(f"key-{round}", waiting=KEYED // 5 if round % 2 else 0))


@pytest.mark.only_with_all  # it waits for a race, which may need many bursts
@pytest.mark.timeout(900)
def test_with_the_claim_switched_off_two_run_ids_do_appear(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The control: without the claim, the same bursts show the race that it closes."""
    store, data = place("redis_postgres", request, tmp_path)
    with fleet(store, tmp_path, data, {**TRIPS, "triggers_claim": "false"}) as it:
        for round in range(60):
            time.sleep(RECOVERY)  # a gate that is still tripped sends the whole burst to the buffer: one id
            ids = it.burst(f"key-{round}").ids
            if len(ids) > 1:
                break
        assert len(ids) >= 2, "SQL has one winner, and the buffer another"
        it.until_drained()
        (row,) = it.rows(f"key-{round}")
        assert {it.run(id)["id"] for id in ids} == {row["id"]}, "the duplicate resolves to the run that has the key"


def test_triggers_whose_parent_waits_get_the_same_run_id(it: Fleet) -> None:
    check_one_run(it, "waiting", it.burst("waiting", waiting=KEYED // 5))
