"""Lists of runs: page by page in both directions, by each filter, on either database; and what the database looks at
for a page."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from solely.apps.triggers import lists
from tests.apps.operator import operating
from tests.apps.triggers.test_work_http import Desk

MANY = 5_000  # runs: enough that a database prefers an index to all of them
LOOKED_AT = 200  # rows of a page that has 25 runs, or none

FILTERS: dict[str, dict[str, Any]] = {
    "filter[tag]": {"tags": ["x", "all"]},
    "filter[queue]": {"queue": {"name": "x"}},
    "filter[machine]": {"machine": "x"},
    "filter[idempotencyKey]": {"idempotencyKey": "x"},
    "filter[taskIdentifier]": {},
    "filter[status]": {},
}


@pytest.fixture(scope="module")
def desk(data_url: str) -> Iterator[Desk]:
    with operating("triggers", {"gate": "off"}, data_url=data_url) as it:
        yield Desk(it.service)


def page(desk: Desk, **query: Any) -> tuple[list[str], dict[str, str]]:
    answer = desk.ask("/api/v1/runs", **query)
    return [run["id"] for run in answer["data"]], answer["pagination"]


def walk(desk: Desk, size: int, **query: Any) -> list[list[str]]:
    """The pages up to the last one, and then those back to the first one."""
    ids, places = page(desk, **query, **{"page[size]": size})
    assert "previous" not in places
    pages = [ids]
    while "next" in places:
        ids, places = page(desk, **query, **{"page[size]": size, "page[after]": places["next"]})
        assert "previous" in places
        pages.append(ids)
    while "previous" in places:
        ids, places = page(desk, **query, **{"page[size]": size, "page[before]": places["previous"]})
        assert "next" in places
        pages.append(ids)
    return pages


@pytest.mark.parametrize("size", [1, 3, 4, 12, 100])
def test_a_list_is_read_page_by_page_forwards_and_back(desk: Desk, size: int) -> None:
    task = f"paged-{secrets.token_hex(4)}"  # the services of these tests share a database
    ids = [desk.trigger(task, tags=["all", f"t{number % 3}"]) for number in range(12)][::-1]
    forwards = [ids[first : first + size] for first in range(0, len(ids), size)]
    for query in ({}, {"filter[tag]": "all"}, {"filter[tag]": "t0,t1,t2,none"}, {"filter[status]": "QUEUED,FAILED"}):
        found = walk(desk, size, **{"filter[taskIdentifier]": task, **query})
        assert found == forwards + forwards[-2::-1], query


def test_a_page_beside_the_last_run_leads_back_to_it(desk: Desk) -> None:
    task = f"emptied-{secrets.token_hex(4)}"
    first, last = desk.trigger(task), desk.trigger(task)
    _, places = page(desk, **{"filter[taskIdentifier]": task, "page[size]": 1})
    query: dict[str, Any] = {"filter[taskIdentifier]": task, "filter[status]": "FAILED"}
    ids, beside = page(desk, **query, **{"page[after]": places["next"]})
    assert (ids, [*beside]) == ([], ["previous"])
    del query["filter[status]"]
    assert page(desk, **query, **{"page[before]": beside["previous"]})[0] == [last]
    assert page(desk, **query, **{"page[after]": places["next"]})[0] == [first]


@pytest.mark.parametrize("bad", [{"page[before]": "nan/x"}, {"page[before]": "1/a", "page[after]": "1/a"}])
def test_a_page_before_an_invalid_place_is_refused(desk: Desk, bad: dict[str, str]) -> None:
    assert desk.get("/api/v1/runs", **bad).status_code == 400


def test_a_list_of_a_span_of_time_has_the_runs_at_its_ends(desk: Desk) -> None:
    task = f"spanned-{secrets.token_hex(4)}"
    ids = [desk.trigger(task) for _ in range(5)]
    app: Any = desk.service.service.apps["triggers"]
    at = [desk.service.run(app.table.find("default", id)).created_at for id in ids]
    only = lists.ListFilter(tasks=[task], since=at[1], until=at[3])
    for given in ({}, {"before": "1/run"}):
        found = desk.service.run(app.lists.page(["default"], only, 10, **given))
        assert [run.id for run in found.runs] == ids[3:0:-1]


@pytest.mark.parametrize("name", FILTERS)
def test_a_list_by_a_filter_has_the_runs_that_match_and_those_alone(desk: Desk, name: str) -> None:
    value = f"v-{secrets.token_hex(4)}"
    given = json.loads(json.dumps(FILTERS[name]).replace('"x"', f'"{value}"'))
    here = desk.trigger(value if "task" in name else "filtered", **given)
    desk.trigger("filtered", tags=["all"], queue={"name": "others"}, machine="others")
    if name == "filter[status]":
        desk.post(f"/api/v2/runs/{here}/cancel", {})
        assert here in page(desk, **{name: "CANCELED"})[0]
        assert here not in page(desk, **{name: "QUEUED,FAILED"})[0]
        return
    others = ",".join(f"{value}-{number}" for number in range(20))
    for values in (value, f"{value},{others}") if "Key" not in name else (value,):
        assert page(desk, **{name: values})[0] == [here]
    assert page(desk, **{name: f"{value}-0"})[0] == []


def test_a_tag_that_is_added_later_is_listed(desk: Desk) -> None:
    tag, id = secrets.token_hex(4), desk.trigger("tagged")
    assert page(desk, **{"filter[tag]": tag})[0] == []
    assert desk.post(f"/api/v1/runs/{id}/tags", {"tags": [tag]}).status_code == 200
    assert page(desk, **{"filter[tag]": tag})[0] == [id]


def test_a_queue_and_a_machine_with_long_names_are_listed(desk: Desk) -> None:
    name = secrets.token_hex(4) * 500
    id = desk.trigger("long", queue={"name": name}, machine=5)
    assert page(desk, **{"filter[queue]": name[:2000]})[0] == []
    app: Any = desk.service.service.apps["triggers"]
    found = desk.service.run(app.lists.page(["default"], lists.ListFilter(queues=[name]), 10))
    assert [run.id for run in found.runs] == [id]


@pytest.fixture(scope="module")
def many(desk: Desk) -> Desk:
    """The same, with many runs, each of one task, state, tag, queue and machine."""
    app: Any = desk.service.service.apps["triggers"]
    id = desk.trigger("one", tags=["all"], queue={"name": "all"}, machine="all")
    run = desk.service.run(app.table.find("default", id))
    letters = "abcdefghijklmnopqrstuvwxyz234567"

    def numbered(number: int) -> Any:
        place = "".join(letters[number >> 5 * digit & 31] for digit in range(13))
        return type(run)(**{**{name: getattr(run, name) for name in run.__struct_fields__},
                            "id": f"run_{place}{id[-26:]}", "created_at": run.created_at - number})  # fmt: skip

    async def fill() -> None:
        for first in range(0, MANY, 500):
            await app.table.insert([numbered(number) for number in range(first, first + 500)])
        await app.service.data.run("ANALYZE")

    desk.service.run(fill())
    return desk


ABSENT: tuple[dict[str, Any], ...] = (
    {}, {"key": "none"}, {"tags": ["none"]}, {"queues": ["none"]}, {"machines": ["none"]}, {"tasks": ["none"]},
    {"states": ["FAILED"]}, {"tags": ["none"], "states": ["QUEUED"]}, {"tags": ["all"]}, {"tasks": ["one"]},
)  # fmt: skip


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("given", ABSENT, ids=str)
def test_a_page_looks_at_few_runs_whether_many_match_or_none(many: Desk, given: dict[str, Any], back: bool) -> None:
    app: Any = many.service.service.apps["triggers"]
    looked: list[int] = []  # rows, by statement
    rows = type(app.service.data).rows

    async def explained(data: Any, sql: str, **values: Any) -> Any:
        if data.dialect == "postgresql":
            plan = await rows(data, f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", **values)
            looked.append(_looked_at(plan[0]["QUERY PLAN"][0]["Plan"]))
        else:
            plan = [row["detail"] for row in await rows(data, f"EXPLAIN QUERY PLAN {sql}", **values)]
            walked = [each for each in plan if each.startswith("SEARCH") and "=? AND" in each and " had " not in each]
            assert walked, plan
            assert not any(each.startswith(("SCAN runs", "SCAN labels", "USE TEMP")) for each in plan), plan
            of_filter = any(given.values())
            assert not of_filter or "by_time" not in walked[0], plan
            looked.append(0)
        return await rows(data, sql, **values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(app.service.data), "rows", explained)
        place = {"before": "1/run"} if back else {}
        many.service.run(app.lists.page(["default"], lists.ListFilter(**given), 25, **place))
    assert max(looked) <= LOOKED_AT


def _looked_at(plan: dict[str, Any]) -> int:
    """The most rows that a step of the plan looked at."""
    here = plan["Actual Rows"] * plan["Actual Loops"] + plan.get("Rows Removed by Filter", 0)
    return max([int(here), *map(_looked_at, plan.get("Plans", []))])
