"""What a server reports about itself: what should its owner know?"""

from __future__ import annotations

import time
from typing import Any

from ...model import Finding
from .settings import PostgresSettings
from .statements import NEWEST

TESTED = (15, 18)
SKEW = 1.0  # seconds between two clocks that NTP keeps: usually milliseconds, so one second is a broken clock
AHEAD = 86_400.0  # seconds that fences may be ahead of the clock: more is a clock that was set back, not a leap


POOLER = (
    "a pooler lends its connections: say pgbouncer=true in the URL, or pgbouncer=false if it lends them per session "
    "and passes `options` on, so that waiters need not poll"
)


def findings(settings: PostgresSettings, result: Any, *, took: float, pooled: bool) -> list[Finding]:
    """What check() says of a server that answered the query `check`; `pooled`: a pooler is in between."""
    at = settings.address
    version, number, recovering, clock, fence, commit, fsync, full_pages, schema, locks = (
        (result.get_value(0, column) or b"").decode() for column in range(result.nfields)
    )
    found = [Finding("ok", at, f"PostgreSQL {version} answers in {took * 1000:.2f} ms")]
    if int(number) // 10_000 not in TESTED:
        tested = " and ".join(map(str, TESTED))
        found.append(Finding("warning", at, f"this store is tested on PostgreSQL {tested}, not on {version}"))
    if pooled and settings.pgbouncer is None:
        found.append(Finding("warning", at, POOLER))
    if recovering == "true":
        found.append(Finding("error", at, "it is a replica instead of the primary: it cannot write"))
    else:
        found.append(Finding("ok", at, "it is a primary"))
    found += _clock_findings(at, float(clock), int(fence) / 1_000_000)
    found += _safety_findings(at, commit, fsync, full_pages)
    level = "ok" if int(schema) == NEWEST else "warning"
    found.append(Finding(level, at, f"schema {settings.schema} is at version {schema}; this library knows {NEWEST}"))
    if int(locks) < 64:
        text = f"max_locks_per_transaction is {locks}: large batches may be refused; 64 is the default"
        found.append(Finding("warning", at, text))
    return found


def _clock_findings(at: str, clock: float, fence: float) -> list[Finding]:
    skew = clock - time.time()
    found = [Finding("ok" if abs(skew) <= SKEW else "warning", at, f"its clock differs from ours by {skew:+.3f} s")]
    if fence > clock + AHEAD:
        text = (
            f"fences are {(fence - clock) / 86_400:.1f} days ahead of the clock, which was set back: they still grow, "
            "but would fall back if all data were lost before the clock has caught up"
        )
        found.append(Finding("warning", at, text))
    return found


def _safety_findings(at: str, commit: str, fsync: str, full_pages: str) -> list[Finding]:
    found = []
    if fsync == "off" or full_pages == "off":
        text = "fsync or full_page_writes is off: a crash of the host may lose or damage everything; switch them on"
        found.append(Finding("warning", at, text))
    if commit == "off":
        text = (
            "synchronous_commit is off: a crash of the server may lose holds and marks of the last moments that were "
            "answered; set it on for this user: ALTER ROLE … SET synchronous_commit = on"
        )
        found.append(Finding("warning", at, text))
    return found or [Finding("ok", at, "holds, marks and results are on the disk before they are answered")]
