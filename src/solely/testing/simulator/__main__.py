"""python -m solely.testing.simulator --seed N [--of claims] [--bug MODULE:NAME]: replays a seed; exit code 1 on a
violation."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from importlib import import_module

from . import simulate, simulate_claims, simulate_queues, simulate_reservations, simulate_schedules

_SIMULATIONS = {
    "locks": simulate,
    "claims": simulate_claims,
    "reservations": simulate_reservations,
    "queues": simulate_queues,
    "schedules": simulate_schedules,
}


def main() -> int:
    """Runs the requested seeds and prints the first violation with the history before it."""
    parser = argparse.ArgumentParser(prog="python -m solely.testing.simulator", description=__doc__)
    parser.add_argument("--of", choices=_SIMULATIONS, default="locks", help="what the clients do")
    parser.add_argument("--seed", type=int, required=True, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from the first on")
    parser.add_argument("--bug", default="", help="module:name of a context manager that plants a bug")
    parser.add_argument("--tail", type=int, default=60, help="lines of history to show")
    parser.add_argument("--about", default="", help="show only lines with this text")
    options = parser.parse_args()
    module, _, name = options.bug.partition(":")
    with getattr(import_module(module), name)() if options.bug else nullcontext():
        for seed in range(options.seed, options.seed + options.seeds):
            history = _SIMULATIONS[options.of](seed)
            if history.invariant or options.seeds == 1:
                sys.stdout.write(f"{history.tail(options.tail, lambda line: options.about in line)}\n")
            if history.invariant:
                sys.stdout.write(f"seed {seed} violates {history.invariant!r}: {history.how}\n")
                return 1
    sys.stdout.write(f"{options.seeds} seeds, 0 violations\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
