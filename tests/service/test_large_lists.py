"""Lists of entries with large values take the memory of a part, and not of all that they look at."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from solely import AsyncClient
from tests.service.serving import LINES, TOKENS, Running, bearer, running

COUNT = 250
SIZE = 96 << 10  # bytes of each value
MOST = 16 << 20  # bytes that a request may take: all values have 24 MiB
READER = bearer(TOKENS["read"])
LISTS = (
    "/v1/queues/items?queue=big&limit=1000",
    "/v1/queues",
    "/v1/dead-letters?group=big&limit=1000",
    "/v1/claims?limit=1000",
    "/v1/entries?prefix=item/&limit=1000",
    "/v1/entries/explain?key=big",
    "/queues?queue=big&limit=1000",
    "/queues",
    "/dead-letters?group=big&limit=1000",
    "/dead-letters",
    "/claims?limit=1000&sort=holder",
    "/search?q=none",
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with a queue, a group of dead letters, and claims."""

    async def fill(once: AsyncClient) -> None:
        queue, letters = once.queue("big"), once.dead_letters("big")
        for number in range(COUNT):
            value = f"{number:0{SIZE}}"
            await queue.push(f"{number:04}", value)
            await letters.push(value, error="it failed", id=f"{number:04}")
            claim = await once.claim(f"{number:04}", ttl=600)
            await claim.publish(value)

    with running(url=f"sqlite:///{tmp_path_factory.mktemp('large')}/store.db", tokens=LINES) as it:
        it.run(fill(it.service.once))
        yield it


@pytest.mark.parametrize("path", LISTS)
def test_a_list_takes_the_memory_of_a_part(path: str, filled: Running) -> None:
    assert filled.get(path, headers=READER).status_code == 200
    filled.on_loop(filled.service.dashboard.views.clear)
    tracemalloc.start()
    try:
        assert filled.get(path, headers=READER).status_code == 200
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST


@pytest.mark.parametrize(
    ("path", "rows"),
    [
        ("/v1/queues/items?queue=big", "items"),
        ("/v1/dead-letters?group=big", "letters"),
        ("/v1/claims?", "claims"),
        ("/v1/entries?prefix=claim/", "entries"),
        ("/v1/entries?prefix=claim/&values=true", "entries"),
        ("/v1/entries?prefix=claim", "entries"),
    ],
)
@pytest.mark.parametrize("limit", [50, 51, 1000])
def test_the_pages_of_a_list_have_each_row_once(path: str, rows: str, limit: int, filled: Running) -> None:
    found, after = list[str](), ""
    for _ in range(COUNT):
        page = filled.get(f"{path}&limit={limit}&after={after}", headers=READER).json()
        found += [row.get("id") or row["key"] for row in page[rows]]
        after = page["next"]
        if not after or len(found) > COUNT:
            break
    assert found == sorted(set(found))
    assert len(found) == COUNT


def test_an_answer_with_values_has_a_bounded_size(filled: Running) -> None:
    answer = filled.get("/v1/entries?prefix=claim/&values=true&limit=1000", headers=READER)
    assert len(answer.content) < 8 << 20
    assert answer.json()["next"]
