"""The service as it runs for real: two workers that share a store, producers that all post the same signals at once,
and a worker that is killed while they do."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.apps.fleet import Fleet, fleet
from tests.conftest import STORES, isolated

pytestmark = pytest.mark.only_with_all

GROUPS = [f"house-{number}/slots" for number in range(5)]
NAMES = [f"user-{number}" for number in range(20)]
BATCH: dict[str, Any] = {"signals": [{"username": name} for name in NAMES]}
EXPECTED = Counter({f"{group}/{name}": 1 for group in GROUPS for name in NAMES})


def insist(it: Fleet, group: str) -> None:
    """Posts the batch until it is answered 200, as a producer does after a 409 or a lost connection."""
    it.insist_on(f"/api/signals/{group}", BATCH, [])


def written(it: Fleet) -> Counter[str]:
    answer = httpx2.get(f"{it.address}/api/signals/waiting?limit=1000", headers=it.headers, timeout=20.0)
    return Counter(f"{each['house']}/{each['game']}/{each['username']}" for each in json.loads(answer.text)["signals"])


@pytest.mark.parametrize("killed", [False, True])
def test_eight_producers_at_two_workers_write_each_signal_once(
    request: pytest.FixtureRequest, tmp_path: Path, killed: bool
) -> None:
    url = isolated(request.getfixturevalue("valkey_url")) if "valkey" in STORES else STORES["sqlite"](request)
    with fleet(Fleet, "signals", url, tmp_path, None, {"signals_ttl": "2"}, workers=2) as it:  # type: ignore[arg-type]
        threads = [threading.Thread(target=insist, args=(it, group)) for group in GROUPS for _ in range(8)]
        for thread in threads:
            thread.start()
        if killed:
            os.kill(it.workers[0], signal.SIGKILL)
        for thread in threads:
            thread.join()
        assert written(it) == EXPECTED
