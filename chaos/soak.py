"""python -m chaos.soak: all primitives on Redis and PostgreSQL for half an hour, in which nothing may grow.

Per store two processes work, one with each kind of client. Every 30 s it is measured what they and the server use. The
mean of the last fifth must be within 5 % of that of the fifth after the first minutes; differences that a single
connection, thread or entry makes do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from solely.rules import local_clock

from .crew import Crew
from .deployments import DEPLOYMENTS, Deployment
from .deployments.single import PostgreSQL, Redis
from .report import table
from .worker import Job

MINUTES = 30.0
SETTLES = 5 / 30  # of the time, in which pools fill and the first entries are forgotten
EVERY = 30.0  # seconds between two measurements
MOST = 0.05  # of the earlier mean
# What a figure may differ by, whatever that is in per cent: its grain, and what comes and goes within a second.
GRAIN = {"rss_mb": 2.0, "files": 3.0, "threads": 2.0, "connections": 3.0, "rows": 15.0}
STORES = ("redis", "postgres")


class Measurement(NamedTuple):
    """What two processes and their server use at one moment."""

    minute: float
    rss_mb: float
    files: int
    threads: int
    connections: int
    rows: int


def measured(pids: list[int], deployment: Deployment, namespace: str, minute: float) -> Measurement:
    """Sums over the processes; and what the server has for them."""
    page = os.sysconf("SC_PAGE_SIZE")
    rss = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page for pid in pids) / 1e6
    files = sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)
    threads = sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in pids)
    return Measurement(minute, rss, files, threads, *_server(deployment, namespace))


def _server(deployment: Deployment, namespace: str) -> tuple[int, int]:
    """(connections, rows or keys)."""
    if isinstance(deployment, Redis):
        server = deployment.server
        return int(server.ask("INFO", "clients")["connected_clients"]) - 1, int(server.ask("DBSIZE"))
    assert isinstance(deployment, PostgreSQL)
    ask = deployment.server.ask
    [(connections,)] = ask("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
    [(entries,)] = ask(f'SELECT count(*) FROM "{namespace}".entries')
    [(hits,)] = ask(f'SELECT count(*) FROM "{namespace}".entries_hits')
    return int(connections) - 1, int(entries) + int(hits)


def drifts(series: list[Measurement]) -> dict[str, float]:
    """By how much each figure grew or shrank, as a part of its mean after the first minutes; only what is too much."""
    steady = series[int(len(series) * SETTLES) :]
    part = max(1, len(steady) // 5)
    found = {}
    for name, grain in GRAIN.items():
        before = fmean(getattr(each, name) for each in steady[:part])
        after = fmean(getattr(each, name) for each in steady[-part:])
        if abs(after - before) > max(grain, MOST * before):
            found[name] = (after - before) / max(before, 1.0)
    return found


def soak(minutes: float, seed: int) -> dict[str, list[Measurement]]:
    """The measurements of each store."""
    series: dict[str, list[Measurement]] = {name: [] for name in STORES}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="solely-soak-")))
        crews, namespace = dict[str, tuple[Deployment, Crew]](), "soak"
        for name in STORES:
            deployment = stack.enter_context(DEPLOYMENTS[name]())
            deployment.prepare(namespace)
            crew = stack.enter_context(Crew())
            for number in range(2):
                log = folder / f"{name}-{number}.jsonl"
                crew.add(Job("soak", deployment.url(namespace), log, number, f"{seed}:{name}:{number}", {}))
            crew.ready()
            crews[name] = deployment, crew
        begin = local_clock()
        while (elapsed := local_clock() - begin) < minutes * 60:
            time.sleep(min(EVERY, minutes * 60 / 20))
            for name, (deployment, crew) in crews.items():
                pids = [member.pid for member in crew.alive]
                if len(pids) < 2:
                    raise ChildProcessError(f"a worker of the soak on {name} ended: see its output")
                series[name].append(measured(pids, deployment, namespace, elapsed / 60))
        for _, crew in crews.values():
            crew.finish()
    return series


def shown(series: dict[str, list[Measurement]], points: int = 12) -> str:
    """The series as a table, with about so many lines per store, and what drifted."""
    parts = []
    for name, measurements in series.items():
        chosen = measurements[:: max(1, len(measurements) // points)]
        lines = [("minute", "RSS MB", "files", "threads", "connections", "rows")]
        lines += [
            (f"{m.minute:.1f}", f"{m.rss_mb:.1f}", str(m.files), str(m.threads), str(m.connections), str(m.rows))
            for m in chosen
        ]
        verdict = drifts(measurements) or "flat"
        parts.append(f"soak on {name}: {verdict}\n{table(lines)}")
    return "\n\n".join(parts)


def failures(series: dict[str, list[Measurement]]) -> list[str]:
    """What was not flat."""
    return [
        f"{store}: {name} {by:+.0%}"
        for store, measurements in series.items()
        for name, by in drifts(measurements).items()
    ]


def main() -> int:
    """Prints the series, as JSON if asked to; returns 1 if something grew."""
    parser = argparse.ArgumentParser(prog="python -m chaos.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the series as JSON")
    options = parser.parse_args()
    series = soak(options.minutes, options.seed)
    if options.json:
        plain: dict[str, Any] = {name: [each._asdict() for each in measured] for name, measured in series.items()}
        print(json.dumps(plain))
    else:
        print(shown(series))
    return 1 if failures(series) else 0


if __name__ == "__main__":
    sys.exit(main())
