"""Lists of any length: paged by key, each page as quick as the first."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from solely.http import Client
from solely.ops import Acquire, Mark
from solely.stores import open_store
from tests.service.serving import Running, running

MANY = 100_000
AT_ONCE = 5_000


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def full(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service whose store has 100,000 marks and a few locks."""
    folder: Path = tmp_path_factory.mktemp("full")
    name = folder.name
    url = f"memory://{name}?max_size=200000" if request.param == "memory" else f"sqlite:///{folder}/full.sqlite3"
    with running(url=url) as service:
        store = open_store(url)
        for start in range(0, MANY, AT_ONCE):
            store.perform([Mark(f"mark/{n:06}", "o", 3600) for n in range(start, start + AT_ONCE)])
        store.perform([Acquire(f"lock/{n}", "o", 3600) for n in range(3)])
        store.close()
        yield service


def test_all_entries_are_found_page_by_page(full: Running) -> None:
    with Client(full.address) as service:
        keys = [entry.key for entry in service.entries.list("mark/")]
        assert keys == [f"mark/{n:06}" for n in range(MANY)]
        assert [entry.key for entry in service.entries.list("lock/")] == ["lock/0", "lock/1", "lock/2"]


def test_a_page_in_the_middle_is_as_quick_as_the_first(full: Running) -> None:
    with Client(full.address) as service:
        for after in ("", "mark/050000", "mark/099900"):
            started = time.perf_counter()
            page = full.get("/v1/entries", params={"prefix": "mark/", "after": after, "limit": 100}).json()
            assert time.perf_counter() - started < 1.0
            first = int(after[5:] or -1) + 1
            assert [entry["key"] for entry in page["entries"]] == [
                f"mark/{n:06}" for n in range(first, min(first + 100, MANY))
            ]
            assert page["next"] == (f"mark/{first + 99:06}" if first + 100 <= MANY else None)
        assert service.entries.explain("050000").sides[1].state == "done"


def test_pages_have_a_largest_size(full: Running) -> None:
    assert full.get("/v1/entries", params={"limit": 1001}).status_code == 400
    assert len(full.get("/v1/entries", params={"limit": 1000, "values": "true"}).json()["entries"]) == 100
