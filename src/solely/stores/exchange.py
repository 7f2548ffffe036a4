"""The commonest batch: many callers let go of keys and take keys, all of them plainly. Stores that can do the whole of
it in a statement or two ask here whether a batch is one."""

from __future__ import annotations

from collections.abc import Sequence

from ..ops import Acquire, Op, Release

Exchange = tuple[dict[str, Release], dict[str, Acquire]]  # by key: what is let go of, and then what is taken


def exchange(ops: Sequence[Op]) -> Exchange | None:
    """The ops as an exchange; None if they are not all plain Releases and Acquires, or if their order matters: only a
    Release may have its key occur again behind it, in an Acquire."""
    old: dict[str, Release] = {}
    new: dict[str, Acquire] = {}
    for op in ops:
        if type(op) is Release:
            key, _, revoke, closing, keep, _ = op
            if revoke or closing or keep or key in old or key in new:
                return None
            old[key] = op
        elif type(op) is Acquire:
            key, _, _, _, _, delay, fingerprint, counted, value = op
            if delay or fingerprint or counted or value or key in new:
                return None
            new[key] = op
        else:
            return None
    return old, new
