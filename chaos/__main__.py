"""python -m chaos: kills each store's server under load; prints a table to stderr and, with --json, JSON to stdout."""

import argparse
import json
import sys

from .runner import SERVERS, Plan, run
from .verdict import Verdict


def main() -> int:
    """Returns 0 if every promise held, 1 if one was broken."""
    options = _options()
    verdicts = {}
    plan = Plan(options.processes, options.seconds, options.kills, options.seed)
    for store in options.store or SERVERS:
        print(f"{store}: {plan}", file=sys.stderr)
        verdicts[store] = run(SERVERS[store](), plan)
    print(table(verdicts), file=sys.stderr)
    if options.json:
        print(json.dumps({store: verdict._asdict() for store, verdict in verdicts.items()}))
    return int(any(verdict.broken for verdict in verdicts.values()))


def table(verdicts: dict[str, Verdict]) -> str:
    """Returns a table with one line per figure and one column per store."""
    figures = [name for name in Verdict._fields if name != "errors"]
    errors = sorted({error for verdict in verdicts.values() for error in verdict.errors})
    lines = [
        ("", *verdicts),
        *((name, *(_shown(getattr(verdict, name)) for verdict in verdicts.values())) for name in figures),
        *((name, *(str(verdict.errors.get(name, 0)) for verdict in verdicts.values())) for name in errors),
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _shown(figure: float | None) -> str:
    return "never" if figure is None else f"{figure:.2f}".removesuffix(".00")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--store", action="append", choices=SERVERS, help="only this one; may be repeated")
    parser.add_argument(
        "--processes", type=int, default=Plan._field_defaults["processes"], help="workers, every second one on asyncio"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=Plan._field_defaults["seconds"],
        help="length of the run; longer if restarts take long",
    )
    parser.add_argument(
        "--kills", type=int, default=Plan._field_defaults["kills"], help="SIGKILLs during the run; one more follows it"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=Plan._field_defaults["seed"],
        help="of the random times of the kills and the workers' turns",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object by store on stdout")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
