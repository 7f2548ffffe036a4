"""Planted bugs: the battery must find each of them, on real servers, with the workload that is there for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from solely.rules import local_clock

from ..deployments import DEPLOYMENTS, Deployment
from ..faults import FAULTS
from ..rounds import RoundPlan, RoundResult, run_round

if TYPE_CHECKING:
    from ..battery import Choice
    from ..report import Report

AT_ONCE = 4  # mutants: most of the time their workers sleep
TRIES = 5  # rounds with other seeds: whether a bug shows is a matter of chance
# Most holders of one key outlive their lease; or those of several keys, so that some find nobody in their place.
OUTLIVE = {"outlive": 0.8, "keys": 1, "kept": 0.0}
OUTLIVE_ALONE = {"outlive": 0.8, "keys": 5, "kept": 0.0}
HANDED_OVER = {"handed_over": 0.5, "kept": 0.0}
# More deliveries than a quick machine makes between two faults, of few ids: each was marked before the first fault.
ONE_BY_ONE = {"ids": 40, "copies": 2_000, "batch": 1}
PAUSE = "pause client 1.5 ttl"


class Mutant(NamedTuple):
    """A bug: where it is planted, and the round that must find it."""

    name: str
    module: str
    deployment: str
    workload: str
    fault: str = "none"
    settings: dict[str, Any] = {}  # noqa: RUF012 - never changed
    ttl: float = 1.0
    seconds: float = 3.0
    at_least: int = 3  # faults

    @property
    def path(self) -> str:
        return f"chaos.mutants.{self.module}:{self.name}"

    @property
    def in_database(self) -> bool:
        """True if it is planted in the server, and not in the workers."""
        return self.module == "functions"

    @property
    def plant(self) -> Callable[..., None]:
        planted: Callable[..., None] = getattr(import_module(f"chaos.mutants.{self.module}"), self.name)
        return planted


class MutantResult(NamedTuple):
    """Whether a planted bug was found, and by which findings."""

    name: str
    deployment: str
    workload: str
    caught: bool
    by: str
    rounds: int
    seconds: float


MUTANTS = (
    Mutant("acquire_overwrites", "scripts", "redis", "W1"),
    Mutant("release_of_anybody", "scripts", "redis", "W1", settings=OUTLIVE, seconds=5.0),
    Mutant("expires_too_soon", "scripts", "redis", "W1", settings=OUTLIVE),
    Mutant("renewal_revives", "scripts", "redis", "W1", settings=OUTLIVE_ALONE, seconds=5.0),
    Mutant("token_is_resumed_again", "scripts", "redis", "W1", settings=HANDED_OVER),
    Mutant("fence_of_the_second", "scripts", "redis", "W4"),
    Mutant("seen_is_first", "scripts", "redis", "W5"),
    Mutant("mark_expires_too_soon", "scripts", "redis", "W5", seconds=5.0),
    Mutant("finish_of_anybody", "scripts", "redis", "W7", settings=OUTLIVE, seconds=5.0),
    Mutant("take_of_the_taken", "scripts", "redis", "W9"),
    Mutant("ack_keeps_the_item", "scripts", "redis", "W9"),
    Mutant("push_forgets", "scripts", "redis", "W9"),
    Mutant("limit_of_one_more", "scripts", "redis", "W6"),
    Mutant("quiet_is_short", "scripts", "redis", "W6"),
    Mutant("waits_for_the_holder", "flows", "redis", "W8", seconds=0.5),
    Mutant("never_lost", "flows", "redis", "W1", PAUSE, seconds=5.0, at_least=6),
    Mutant("release_is_not_sent", "flows", "redis", "W1", ttl=5.0, seconds=5.0),
    Mutant("superseded_is_published", "flows", "redis", "W7", settings=OUTLIVE, seconds=5.0),
    Mutant("guard_accepts_the_stale", "flows", "redis", "W3", "pause client 5 ttl", at_least=4),
    Mutant("release_of_anybody", "functions", "postgres", "W1", settings=OUTLIVE, seconds=5.0),
    Mutant("fence_of_the_second", "functions", "postgres", "W4"),
    Mutant("finish_of_anybody", "functions", "postgres", "W7", settings=OUTLIVE, seconds=5.0),
    Mutant("take_of_the_taken", "functions", "postgres", "W9"),
    Mutant("seen_is_first", "functions", "postgres", "W5"),
    Mutant("mongo_release_of_anybody", "flows", "mongo", "W1", settings=OUTLIVE, seconds=5.0),
    Mutant("mongo_renewal_revives", "flows", "mongo", "W1", settings=OUTLIVE_ALONE, seconds=5.0),
    Mutant("sqlite_release_of_anybody", "flows", "sqlite", "W1", settings=OUTLIVE, seconds=5.0),
    Mutant("sqlite_renewal_revives", "flows", "sqlite", "W1", settings=OUTLIVE_ALONE, seconds=5.0),
    Mutant("outage_is_first", "flows", "redis", "W5", "pause server", ONE_BY_ONE, 4.0),
)


def run_mutants(choice: Choice, report: Report, folder: Path, seed: int) -> None:
    """Plants each bug in a round of its own, and adds to the report which were found."""
    chosen = [
        mutant
        for mutant in MUTANTS
        if choice.store(mutant.deployment) and (not choice.workloads or mutant.workload in choice.workloads)
    ]
    with ExitStack() as stack, ThreadPoolExecutor(AT_ONCE) as threads:
        deployments = {
            name: stack.enter_context(DEPLOYMENTS[name]()) for name in sorted({each.deployment for each in chosen})
        }
        report.servers.update({name: deployment.version for name, deployment in deployments.items()})
        quiet = [mutant for mutant in chosen if "server" not in mutant.fault]  # they need a server that runs
        found = threads.map(lambda each: _judged(each, deployments[each.deployment], folder, seed), quiet)
        report.mutants += found
        for mutant in chosen:
            if mutant not in quiet:
                report.mutants.append(_judged(mutant, deployments[mutant.deployment], folder, seed))


def _judged(mutant: Mutant, deployment: Deployment, folder: Path, seed: int) -> MutantResult:
    begin, kinds, tries = local_clock(), list[str](), 0
    while not kinds and tries < TRIES:
        result = planted(mutant, deployment, folder, seed + tries)
        found = {finding.kind for workload, finding in result.findings if workload == mutant.workload}
        kinds = sorted(found - {"undecided"})  # a search that ended for lack of time found nothing
        tries += 1
    text = f"found by {', '.join(kinds)}" if kinds else "NOT FOUND"
    print(f"planted {mutant.name} in {mutant.deployment}: {text}", file=sys.stderr, flush=True)
    seconds = local_clock() - begin
    return MutantResult(mutant.name, mutant.deployment, mutant.workload, bool(kinds), ", ".join(kinds), tries, seconds)


def planted(mutant: Mutant, deployment: Deployment, folder: Path, seed: int) -> RoundResult:
    """The result of a round with this bug."""
    plan = RoundPlan(
        mutant.deployment, (mutant.workload,), mutant.fault, seed, mutant.seconds, mutant.at_least, mutant.ttl,
        processes=5 if mutant.workload in ("W1", "W7") else 3, settings=mutant.settings,
        mutant="" if mutant.in_database else mutant.path,
    )  # fmt: skip
    alter = mutant.plant if mutant.in_database else None
    return run_round(deployment, FAULTS[mutant.fault], plan, folder, alter=alter)
