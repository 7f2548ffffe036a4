"""python -m solely.testing.simulator: runs a range of seeds of all simulations on all cores, and prints each seed that
violates a promise with the command that replays it. With --of and --seed alone it replays that seed and shows its
history. Exit code 1 on a violation."""

from __future__ import annotations

import argparse
import os
import sys
import time

from .sweep import SIMULATIONS, Swept, Violation, plant, sweep

_SEEDS = 1_000  # of each simulation, unless told: about a minute on one core
_SHOWN = 20  # violations printed: more of them have the same cause
_LINE_EVERY = 60.0  # seconds between lines of progress where no terminal rewrites them


def main() -> int:
    """Replays one seed, or runs many."""
    parser = argparse.ArgumentParser(prog="python -m solely.testing.simulator", description=__doc__)
    parser.add_argument("--of", choices=SIMULATIONS, action="append", help="what the clients do (default: all)")
    parser.add_argument("--seed", type=int, help="the first seed (default: 0); without --seeds, the only one")
    parser.add_argument("--seeds", type=_positive, help=f"how many of each simulation (default: {_SEEDS:,})")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further seeds after that time")
    parser.add_argument("--processes", type=_positive, default=os.cpu_count() or 1, help="default: one per core")
    parser.add_argument("--bug", default="", help="module:name of a context manager that plants a bug")
    parser.add_argument("--tail", type=int, default=60, help="lines of history to show of one seed")
    parser.add_argument("--about", default="", help="of one seed, show only lines with this text")
    options = parser.parse_args()
    of = options.of or list(SIMULATIONS)
    if options.seed is not None and options.seeds is None:
        return max(_replay(name, options) for name in of)
    return _run_many(of, options)


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _replay(of: str, options: argparse.Namespace) -> int:
    """Runs one seed and shows the end of its history."""
    with plant(options.bug):
        history = SIMULATIONS[of](options.seed)
    sys.stdout.write(f"{history.tail(options.tail, lambda line: options.about in line)}\n")
    if history.invariant:
        sys.stdout.write(f"seed {options.seed} of {of} violates {history.invariant!r}: {history.how}\n")
    else:
        sys.stdout.write(f"seed {options.seed} of {of}: 0 violations\n")
    return 1 if history.invariant else 0


def _run_many(of: list[str], options: argparse.Namespace) -> int:
    """Runs every seed, and prints violations as they are found and a summary at the end."""
    first = options.seed or 0
    seeds = range(first, first + (options.seeds or _SEEDS))
    state, printed, shown = Swept(0, 0.0, (), first - 1), 0, time.monotonic()
    for state in sweep(of, seeds, processes=options.processes, seconds=options.seconds, bug=options.bug):
        for violation in state.violations[printed:_SHOWN]:
            _show(violation, options.bug)
        printed = len(state.violations)
        if sys.stderr.isatty() or time.monotonic() - shown >= _LINE_EVERY:
            shown = time.monotonic()
            _show_progress(state, len(of) * len(seeds))
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    if printed > _SHOWN:
        sys.stdout.write(f"{printed - _SHOWN} more violations are not shown\n")
    each = f"{first} to {state.last} of " if state.last >= first else "of "
    sys.stdout.write(
        f"{state.done:,} seeds, {printed} violations: seeds {each}{', '.join(of)}; {state.seconds:,.0f} s, "
        f"{state.rate:,.0f} seeds per second in {options.processes} processes\n"
    )
    return 1 if printed else 0


def _show(violation: Violation, bug: str) -> None:
    facts = f"seed {violation.seed} of {violation.of} violates {violation.invariant!r}: {violation.how}"
    sys.stdout.write(f"{facts}\n  replay: {violation.replay(bug)}\n")
    sys.stdout.flush()


def _show_progress(state: Swept, total: int) -> None:
    text = f"{state.done:,} of {total:,} seeds, {len(state.violations)} violations, {state.rate:,.0f} per second"
    sys.stderr.write(f"\r\x1b[K{text}" if sys.stderr.isatty() else f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
