"""docs/guarantees.md and docs/security.md: every line names tests, and all of them exist."""

from __future__ import annotations

import re
import time

import pytest

import solely
from solely.rules import DRIFT_FLOOR, DRIFT_RATE, deadline
from solely.stores import SCHEMES
from solely.testing import ManualClock
from tests import evidence

PAGES = {"guarantees.md": 40, "security.md": 20}  # at least so many lines: a table that is not found has none


def page(name: str) -> str:
    return (evidence.ROOT / "docs" / name).read_text()


@pytest.mark.parametrize("name", PAGES)
def test_every_line_names_tests_that_exist(name: str) -> None:
    found = evidence.rows(page(name))
    assert len(found) >= PAGES[name]
    for title, names in found:
        assert names, f"{title}: name the tests that show it"
        for each in names:
            assert evidence.has_test(each), f"{title}: there is no test {each}"


def test_a_name_of_no_test_is_found_out() -> None:
    (row,) = evidence.rows("| promise | shown by |\n|---|---|\n| It holds. | `test_simulator.py::test_x` |\n")
    assert row == ("It holds.", ["test_simulator.py::test_x"])
    assert not evidence.has_test("test_simulator.py::test_x")
    assert not evidence.has_test("test_no_such_file.py::test_no_promise_is_broken")
    assert evidence.has_test("test_simulator.py::test_no_promise_is_broken")
    assert evidence.has_test("promises/holds.py::test_a_free_key_is_granted")


def test_every_store_has_its_section() -> None:
    titles = " ".join(re.findall(r"^### (.*)$", page("guarantees.md"), re.MULTILINE)).lower()
    modules = {each.module for each in SCHEMES.values()}
    known = {"http": "service"}
    assert [name for name in modules if known.get(name, name) not in titles] == []


def test_the_drift_on_the_page_is_the_one_that_a_lease_tolerates() -> None:
    text = page("guarantees.md")
    assert f"({DRIFT_RATE * 100:.0f} % of left + {DRIFT_FLOOR * 1000:.0f} ms)" in text
    (most,) = re.findall(r"every \*\*d up to ([\d.]+) %\*\*", text)
    for left in (0.01, 1.0, 30.0, 86_400.0):
        relied_on = deadline(0.0, left)
        assert relied_on * (1 + float(most) / 100) <= left
    assert deadline(0.0, 30.0) * 1.0102 > 30.0  # no more than that


def test_setting_the_wall_clock_of_the_holder_changes_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    with solely.Client("memory://", clock=ManualClock()) as once:
        lease = once.lock("key", ttl=600.0, renew=False)
        for wall in (0.0, 4e9):
            monkeypatch.setattr(time, "time", lambda wall=wall: wall)
            assert not lease.lost
            assert 300.0 < lease.remaining() < 600.0


def test_the_list_of_owasp_is_complete() -> None:
    numbers = [int(number) for number in re.findall(r"^\| API(\d+):2023 ", page("security.md"), re.MULTILINE)]
    assert set(numbers) == set(range(1, 11))
