"""`solely triggers …` against a running service."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from solely.apps.triggers.work import task
from solely.cli.program import perform
from tests.apps.operator import BECAUSE, operating
from tests.apps.triggers.test_work_http import Desk
from tests.cli.conftest import Told
from tests.service.serving import TOKENS

Run = Callable[..., Told]


@pytest.fixture(scope="module")
def desk(data_url: str) -> Iterator[Desk]:
    with operating("triggers", {"gate": "off"}, data_url=data_url) as it:
        yield Desk(it.service)


@pytest.fixture
def run(desk: Desk, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("runs", …)` answers what `solely triggers runs …` says to an admin of the service."""
    monkeypatch.setenv("SOLELY_URL", desk.service.address)
    monkeypatch.setenv("SOLELY_TOKEN", TOKENS["admin"])

    def perform_it(*words: str) -> Told:
        capfd.readouterr()
        code = perform(["triggers", *words])
        out, err = capfd.readouterr()
        return Told(code, out, err)

    return perform_it


def answered(result: Told) -> Any:
    assert result.code == 0, result.err
    # What the service logs, on a thread of this process, is no answer of the command's.
    return json.loads(re.sub(r"^\d{4}-.*\n", "", result.out, flags=re.MULTILINE))


def test_a_run_is_triggered_once_per_key_listed_and_shown(run: Run) -> None:
    words = ("trigger", "mail", "--payload", '{"to": "Ann"}', "--key", "order-1", "--tag", "a", "--key-ttl", "1h")
    first, again = (answered(run(*words, "-o", "json")) for _ in range(2))
    assert (first["isCached"], again["isCached"], again["id"]) == (False, True, first["id"])
    listed = run("runs", "--task", "mail", "--state", "QUEUED", "--tag", "a", "-o", "json")
    assert [row["id"] for row in answered(listed)] == [first["id"]]
    assert first["id"] in run().out
    assert "There is no such run." in run("runs", "--task", "other").err
    shown = answered(run("show", first["id"], "-o", "json"))
    assert (shown["payload"], shown["run"]["key"]) == ({"to": "Ann"}, "order-1")
    text = run("show", first["id"])
    assert text.code == 0
    assert "triggered" in text.out
    assert run("show", "run_none").code == 3


def test_a_payload_that_is_not_json_is_refused(run: Run) -> None:
    refused = run("trigger", "mail", "--payload", "{to: Ann}")
    assert (refused.code, "is not JSON" in refused.err) == (2, True)


def test_a_run_is_canceled_and_replayed_and_its_key_is_reset(run: Run, desk: Desk) -> None:
    id = answered(run("trigger", "job", "--key", "k", "-o", "json"))["id"]
    assert f"would cancel the run {id}" in run("cancel", id, "--dry-run").err
    assert run("cancel", id, "--yes").code == 0
    assert run("cancel", id, "--yes").code == 3
    new = answered(run("replay", id, "--key", "k2", "-o", "json"))
    assert answered(run("replay", id, "--key", "k2", "-o", "json")) == {**new, "isCached": True}
    assert desk.run(new["id"])["replay_of"] == id
    assert run("reset", "job", "k", "--yes", "--reason", BECAUSE).code == 0
    assert run("reset", "job", "k", "--yes", "--reason", BECAUSE).code == 3
    assert answered(run("trigger", "job", "--key", "k", "-o", "json"))["isCached"] is False


def test_the_gate_and_the_buffer_are_shown(run: Run) -> None:
    (gate,) = answered(run("gate", "-o", "json"))
    assert (gate["environment"], gate["gate"], gate["buffered"]) == ("default", "off", 0)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module of tasks in the current folder; the tasks of this process are others afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    kept = dict(task)
    yield tmp_path / "some_tasks.py"
    sys.modules.pop("some_tasks", None)
    task.clear()
    task.update(kept)


def test_the_tasks_of_a_module_are_run(run: Run, desk: Desk, module: Path) -> None:
    module.write_text(
        'from solely.apps.triggers.work import task\n@task("double")\ndef double(number: int): return 2 * number'
    )
    ids = [desk.trigger("double", number) for number in (1, 2, "three")]
    worked = run("work", "some_tasks", "--until-empty", "--name", "me", "--at-once", "1")
    assert worked.code == 0, worked.err
    assert "me works on double" in worked.err
    assert f"double {ids[0]}, attempt 1, is COMPLETED" in worked.err
    assert [desk.run(id)["output"] for id in ids] == [2, 4, None]
    assert "Expected `int`" in desk.run(ids[2])["run"]["error"]


def test_a_module_that_has_no_tasks_or_is_not_there_is_refused(run: Run, module: Path) -> None:
    module.with_name("no_tasks.py").write_text("")
    task.clear()
    refused = run("work", "no_tasks")
    assert (refused.code, '@task("name")' in refused.err) == (2, True)
    refused = run("work", "not_there.at_all")
    assert (refused.code, "there is no module 'not_there.at_all'" in refused.err) == (2, True)
    refused = run("work", "no_tasks", "--lease", "10ms")
    assert (refused.code, "between 1s and 1h" in refused.err) == (2, True)


@pytest.mark.parametrize("name", ["../evil", "./some_tasks", ".", "..", ".evil", "", "a..b", "a/b", "a b", "a\nb"])
def test_what_names_no_module_is_refused(run: Run, module: Path, name: str) -> None:
    refused = run("work", name)
    assert (refused.code, "is not the name of a Python module" in refused.err) == (2, True), refused


def test_moments_of_a_run_are_shown_as_times(run: Run) -> None:
    made = answered(run("trigger", "timed", "--delay", "1h", "-o", "json"))
    lines = run("show", made["id"]).out.splitlines()
    for name in ("created_at", "available_at"):
        (line,) = [line for line in lines if line.startswith(name)]
        assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d", line), line


def test_a_delay_that_is_over_is_none_and_the_list_still_answers(desk: Desk, run: Run) -> None:
    id = desk.trigger("early", delay="0001-01-01T00:00:00+14:00")  # in the year 0 of UTC
    assert run("runs").code == 0
    assert run("show", id).code == 0
    assert desk.take("early")["id"] == id
