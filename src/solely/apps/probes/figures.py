"""The metrics of the prober. Label values are bounded: a fixed set of results."""

from __future__ import annotations

from ...kit import LATENCY, Figure

PROBED = Figure("solely_probes", "Probes, by result: passed, failed, locked, lost, busy, refused", ("result",))
PROBE_SECONDS = Figure("solely_probe_seconds", "From acquiring the mutex to the result", (), LATENCY)
LATENESS = Figure("solely_probe_lateness_seconds", "From the scheduled moment to the start of the probe", (), LATENCY)
LATE = Figure("solely_probe_results_late", "Results that were written after a newer one, and changed no state")
TARGETS = Figure("solely_probe_targets", "Targets that are probed now", kind="shared gauge")

FIGURES = tuple(each for each in globals().values() if isinstance(each, Figure))
