"""python -m bench: measures, and prints a table or, with --json, one flat object; everything else goes to stderr.

The words costs, curves, profile, crowd, cluster, draw and tables start those programs instead; each has --help.
"""

import argparse
import importlib
import sys
import traceback

from . import (
    alerts,
    alerts_http,
    claims,
    comparisons,
    handoffs,
    http,
    listings,
    marks,
    mongo,
    pairs,
    postgres,
    probes,
    repos,
    scale,
    signals,
    triggers,
)
from .harness import FULL, QUICK, Case, Row, Skipped, run
from .report import flat_json, table

FAMILIES = (
    pairs, handoffs, marks, claims, comparisons, http, postgres, mongo, scale, listings, alerts, alerts_http, probes,
    signals, repos, triggers,
)  # fmt: skip
PROGRAMS = {
    "costs": "costs",
    "curves": "curves",
    "profile": "profiling",
    "crowd": "crowd",
    "cluster": "cluster",
    "draw": "drawing",
    "tables": "tables",
}
CASES: list[Case] = [case for family in FAMILIES for case in family.CASES]


def main() -> int:
    """Returns 0 if every case ran (with --strict: and reached its goals), 1 if not, 2 if no case was selected."""
    if len(sys.argv) > 1 and sys.argv[1] in PROGRAMS:
        program = importlib.import_module(f"bench.{PROGRAMS[sys.argv[1]]}")
        return int(program.main(sys.argv[2:]))
    options = _options()
    cases = [case for family in FAMILIES if family.__name__.endswith(options.family) for case in family.CASES]
    chosen = [case for case in cases if any(goal.key.startswith(options.only) for goal in case.goals)]
    if not chosen:
        keys = "\n  ".join(goal.key for case in CASES for goal in case.goals)
        of = f" of bench/{options.family}.py" if options.family else ""
        print(f"no key{of} begins with {options.only!r}; the keys are:\n  {keys}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    failed = False
    for case in chosen:
        print(case.goals[0].key, file=sys.stderr, flush=True)
        try:
            rows += run(case, QUICK if options.quick else FULL)
        except Skipped as missing:
            print(f"    skipped: {missing}", file=sys.stderr, flush=True)
        except Exception:  # report it, and measure the other cases
            traceback.print_exc()
            failed = True
    rows = [row for row in rows if row.goal.key.startswith(options.only)]
    print(flat_json(rows) if options.json else table(rows))
    return int(failed or (options.strict and not all(row.reached for row in rows)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one flat JSON object: the median by key")
    parser.add_argument("--only", metavar="PREFIX", default="", help="run only the keys that begin with this")
    parser.add_argument("--family", metavar="NAME", default="", help="run only one file of bench/, e.g. comparisons")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter repetitions: a rough look")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a goal was missed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
