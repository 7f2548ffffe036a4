"""Markers: how the trace of a job is found again if the answer to a comment, a push or a merge request was lost.

A comment contains a hidden marker that only we can make, since anybody else could otherwise suppress a comment by
writing its marker first. A commit has a trailer with the name of the run.
"""

from __future__ import annotations

import hashlib
import hmac

from ..model import MARKER

JOB_TRAILER = "Solely-Job"  # the run that made the commit
FENCE_TRAILER = "Solely-Fence"  # the fence of the repository's lock under which it was made
_LENGTH = 32  # hex digits: 128 bits


def run_id(key: str, run: int) -> str:
    """The name of a run of the job with this key: the key, with the number of the run if the key was forgotten since
    the first one."""
    return key if run == 0 else f"{key}#{run + 1}"


def marker_of(run: str, secret: str) -> str:
    """The text that identifies the run to us."""
    return hmac.new(secret.encode(), f"solely repos {run}".encode(), hashlib.sha256).hexdigest()[:_LENGTH]


def failure_marker(run: str, secret: str) -> str:
    """The text that identifies the comment that this run failed: another one than that of its result."""
    return marker_of(f"failure of {run}", secret)


def hidden(marker: str) -> str:
    """The marker as Markdown does not show it."""
    return f"{MARKER} {marker} -->"
