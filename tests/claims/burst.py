"""A process that makes many calls for one claim at once: `python -m tests.claims.burst URL CALLERS HOW RUNS_FILE`.

It says "ready", waits for a line, and then says in JSON what its callers got. Who runs the work writes a line to the
file of runs; `how` says what becomes of the first run: it works, it fails, or it is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from typing import Any

from solely import AsyncClient
from tests.claims.counting import Counted
from tests.lateness import measured_lateness

KEY = "burst"
TTL = 4.0  # seconds: how long the others wait for one that was killed; a renewal may be late by half of it
WORK = 0.2  # seconds that the work takes: long enough for every caller to be in line


async def _call(once: AsyncClient, how: str, runs: str) -> tuple[Any, float]:
    while True:
        claim = await once.claim(KEY, ttl=TTL, wait=30, fingerprint={"order": 1})
        if not claim.won:
            return claim.result(), time.time()
        try:
            async with claim:
                with open(runs, "a") as file:
                    file.write(f"{claim.attempt}\n")
                await asyncio.sleep(WORK)
                if claim.attempt == 1 and how == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                if claim.attempt == 1 and how == "fails":
                    raise ConnectionError("the first run fails")
                value = {"run": f"run-{os.getpid()}", "at": time.time()}
                return (await claim.publish(value)).value, time.time()
        except ConnectionError:
            continue  # its caller tries again, as a client would


async def _burst(url: str, callers: int, how: str, runs: str) -> dict[str, Any]:
    store = Counted("asyncio", url)
    async with AsyncClient(url, store=store, timeout=60) as once:
        await once.seen("warm")
        print("ready", flush=True)
        sys.stdin.readline()
        before = len(store.ops)
        with measured_lateness() as lateness:
            answers = await asyncio.gather(*(_call(once, how, runs) for _ in range(callers)))
    return {
        "runs": sorted({value["run"] for value, _ in answers}),
        "callers": len(answers),
        "late": [told - value["at"] for value, told in answers],
        "lateness": lateness.seconds,
        "ops": len(store.ops) - before,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_burst(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]))), flush=True)
