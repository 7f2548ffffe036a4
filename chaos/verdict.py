"""Judges a run by its observations. It does no I/O, so that tests can plant each fault."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from .observations import Observation, errors


class Outage(NamedTuple):
    """The time from the kill of the server until it responded again."""

    killed: float
    back: float


class Hold(NamedTuple):
    """One hold of a key, from the first to the last time at which its holder relied on it."""

    key: str
    begin: float
    end: float
    fence: int
    worker: int


class Verdict(NamedTuple):
    """What a run did, and how often each promise was broken. A time is None if that never happened."""

    grants: int
    writes: int
    marks: int
    results: int
    retries: int  # ops that were sent again because no answer came
    kills: int
    longest_outage_s: float
    exclusion_violations: int
    fence_regressions: int
    marks_lost: int
    marks_given_twice: int
    marks_given_to_nobody: int
    results_lost: int
    results_given_twice: int
    first_grant_after_return_s: float | None  # the longest of all returns
    all_at_work_after_return_s: float | None  # until each process got something acknowledged; the longest
    errors: dict[str, int]

    @property
    def broken(self) -> dict[str, int]:
        """Returns the promises that were broken, and how often."""
        counts = {name: value for name, value in self._asdict().items() if name in PROMISES and value}
        return counts | {name: count for name, count in self.errors.items() if name.startswith("unexpected")}


PROMISES = (
    "exclusion_violations", "fence_regressions", "marks_lost", "marks_given_twice", "marks_given_to_nobody",
    "results_lost", "results_given_twice",
)  # fmt: skip


def judge(
    observations: list[Observation], outages: list[Outage], processes: int, seen: set[str], results: dict[str, str]
) -> Verdict:
    """Returns the verdict, given the observations, the outages, and the marks and results that the server has kept."""
    holds = holds_of(observations)
    firsts = [each for each in observations if each.kind == "first"]
    marks = [each.key for each in firsts if each.detail]
    published = [each for each in observations if each.kind == "result"]
    acknowledged = [(hold.worker, hold.begin) for hold in holds]
    acknowledged += [(each.worker, each.at) for each in observations if each.kind in ("first", "result", "renewal")]
    in_doubt = {each.key for each in observations if each.kind == "error"}
    return Verdict(
        grants=len(holds),
        writes=sum(each.kind == "write" for each in observations),
        marks=len(marks),
        results=len(published),
        retries=sum(each.kind == "retry" for each in observations),
        kills=len(outages),
        longest_outage_s=max((outage.back - outage.killed for outage in outages), default=0.0),
        exclusion_violations=overlaps(holds),
        fence_regressions=regressions(holds),
        marks_lost=len(set(marks) - seen),
        marks_given_twice=len(marks) - len(set(marks)),
        marks_given_to_nobody=len({each.key for each in firsts} - set(marks) - in_doubt),
        results_lost=sum(results.get(each.key) != each.detail for each in published),
        results_given_twice=len(published) - len({each.key for each in published}),
        first_grant_after_return_s=longest(after(outage.back, (h.begin for h in holds)) for outage in outages),
        all_at_work_after_return_s=longest(
            after(outage.back, (at for worker, at in acknowledged if worker == number))
            for outage in outages
            for number in range(processes)
        ),
        errors=dict(errors(observations)),
    )


def holds_of(observations: list[Observation]) -> list[Hold]:
    """Returns the holds in the order in which they began."""
    writes: dict[tuple[int, int], list[Observation]] = defaultdict(list)
    for each in observations:
        if each.kind == "write":
            writes[each.worker, each.turn].append(each)
    holds = [Hold(w[0].key, w[0].at, w[-1].at, w[0].detail, w[0].worker) for w in writes.values()]
    return sorted(holds, key=lambda hold: hold.begin)


def overlaps(holds: list[Hold]) -> int:
    """Counts holds that began while a worker still relied on an earlier hold of the same key."""
    count, ends = 0, defaultdict[str, float](float)
    for hold in holds:
        count += hold.begin <= ends[hold.key]
        ends[hold.key] = max(ends[hold.key], hold.end)
    return count


def regressions(holds: list[Hold]) -> int:
    """Counts holds whose fence is not greater than those of all earlier holds of the same key."""
    count, fences = 0, defaultdict[str, int](int)
    for hold in holds:
        count += hold.fence <= fences[hold.key]
        fences[hold.key] = max(fences[hold.key], hold.fence)
    return count


def after(moment: float, times: Iterable[float]) -> float | None:
    """Returns the seconds from the moment to the first time that is not before it; None if there is none."""
    return min((time - moment for time in times if time >= moment), default=None)


def longest(spans: Iterable[float | None]) -> float | None:
    """Returns the longest span; None if one of them never ended."""
    known = list(spans)
    return None if None in known else max((span for span in known if span is not None), default=0.0)
