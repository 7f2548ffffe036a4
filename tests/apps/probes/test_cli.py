"""`solely probes …` against a running service."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from solely.cli.program import perform
from tests.apps.hooks import Hooks, hooks_aside
from tests.apps.operator import BECAUSE, Operator, operating
from tests.cli.conftest import Told
from tests.service.serving import TOKENS, until

Run = Callable[..., Told]
WHY = ("--reason", BECAUSE)


@pytest.fixture
def site() -> Iterator[Hooks]:
    with hooks_aside() as it:
        yield it


@pytest.fixture(scope="module")
def desk() -> Iterator[Operator]:
    with operating("probes", {"guard_allow": ["127.0.0.0/8"]}) as it:
        yield it


@pytest.fixture
def run(desk: Operator, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("list", …)` answers what `solely probes list …` says to an admin of the service."""
    monkeypatch.setenv("SOLELY_URL", desk.service.address)
    monkeypatch.setenv("SOLELY_TOKEN", TOKENS["admin"])

    def perform_it(*words: str) -> Told:
        capfd.readouterr()
        code = perform(["probes", *words])
        out, err = capfd.readouterr()
        return Told(code, out, err)

    return perform_it


def answered(result: Told) -> Any:
    assert result.code == 0, result.err
    # What the service logs, on a thread of this process, is no answer of the command's.
    return json.loads(re.sub(r"^\d{4}-.*\n", "", result.out, flags=re.MULTILINE))


def test_a_target_is_added_probed_paused_and_removed_by_commands(run: Run, site: Hooks) -> None:
    assert answered(run("add", "web", site.url, "--interval", "1h", *WHY, "-o", "json"))["interval"] == 3600
    assert answered(run("run", "web", "-o", "json"))["passed"] is True
    tested = answered(run("login-test", "web", "--iterations", "2", "-o", "json"))
    assert (tested["passed"], tested["iterations"]) == (True, 2)
    (listed,) = until(lambda: [each for each in answered(run("list", "-o", "json")) if each["state"] == "UP"], 30)
    assert (listed["name"], listed["url"]) == ("web", site.url)
    (result,) = answered(run("results", "web", "-o", "json"))
    assert (result["passed"], result["status"]) == (True, 200)
    assert run("pause", "web", *WHY).code == 0
    assert run("pause", "web", *WHY).code == 3  # there is nothing to do
    assert run("resume", "web", *WHY).code == 0
    window = answered(run("maintenance", "--target", "web", "--for", "2h", *WHY, "-o", "json"))
    assert window["targets"] == ["web"]
    assert [each["id"] for each in answered(run("windows", "-o", "json"))] == [window["id"]]
    assert run("end-maintenance", window["id"], *WHY).code == 0
    assert run("remove", "web", "--yes", *WHY).code == 0
    assert "There are no targets." in run("list").err


def test_the_table_of_targets_is_for_people(run: Run, site: Hooks) -> None:
    run("add", "shop", site.url, *WHY)
    table = run("list").out
    assert "shop" in table
    assert "PENDING" in table or "UP" in table
    assert run("run", "shop").code == 0
    until(lambda: "100.00%" in run("list").out, 30)
    run("remove", "shop", "--yes", *WHY)


def test_an_invalid_target_is_refused_with_what_is_wrong(run: Run) -> None:
    refused = run("add", "web", "ftp://x.example/", *WHY)
    assert refused.code != 0
    assert "url must begin with http://" in refused.err


def test_a_window_in_no_year_is_refused_and_the_list_still_answers(desk: Operator, run: Run) -> None:
    for starts in ("9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"):  # in the years 10000 and 0 of UTC
        body = {"starts": starts, "lasts": "2h", "reason": BECAUSE}
        assert desk.post("/api/probes/maintenance", body).status_code == 400
        assert run("windows").code == 0
    form = desk.get("/probes/maintenance", starts="253402300800")  # seconds: in the year 10000 as well
    assert form.status_code == 200
