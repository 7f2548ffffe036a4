"""python -m chaos: runs the battery; prints tables to stderr and, with --json, one JSON object to stdout."""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .battery import LONG, SHORT, Choice, planned, run_rounds
from .faults import FAULTS
from .mutants import MUTANTS, run_mutants
from .report import Report
from .soak import Measurement, failures, shown
from .workloads import WORKLOADS

STORES = ("redis", "postgres", "mongo", "sqlite")


def main() -> int:
    """Returns 0 if every promise held and every planted bug was found; else 1."""
    options = _options()
    choice = Choice(tuple(options.store or ()), tuple(options.workload or ()), tuple(options.fault or ()))
    report = Report(options.seed)
    length = LONG if options.long else SHORT
    with _folder(options.keep) as folder, _soaking(report, options):
        if not options.only_mutants:
            run_rounds(planned(length, choice, options.seed), report, folder)
        if not options.no_mutants and not options.fault:
            try:
                run_mutants(choice, report, folder, options.seed)
            except Exception as error:  # what the rounds found is reported in any case
                report.broken.append(f"planted bugs: {error!r:.500}")
    print(f"\n{report.text()}", file=sys.stderr)
    if options.keep:
        print(f"histories: {options.keep}", file=sys.stderr)
    if options.json:
        print(json.dumps(report.as_json()))
    return 0 if report.ok else 1


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    """Where logs and histories go: the folder to keep them in, or one that is removed afterwards."""
    if keep:
        folder = Path(keep)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="solely-chaos-") as name:
        yield Path(name)


@contextmanager
def _soaking(report: Report, options: argparse.Namespace) -> Iterator[None]:
    """In a long run of everything: runs the soak beside the body, and adds what it measured to the report."""
    if not options.long or options.workload or options.fault or options.store or options.only_mutants:
        yield
        return
    command = [sys.executable, "-m", "chaos.soak", "--json", "--seed", str(options.seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield
            print("waiting for the soak", file=sys.stderr, flush=True)
            text, _ = process.communicate()
        except BaseException:
            process.terminate()
            raise
    try:
        found = {name: [Measurement(**each) for each in series] for name, series in json.loads(text).items()}
    except ValueError:
        report.soak_failures.append(f"ended with {process.returncode} and no series")
        return
    report.soak.append(shown(found))
    report.soak_failures += failures(found)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--short", action="store_true", help="a few minutes (the default)")
    length.add_argument("--long", action="store_true", help="up to an hour: every fault on every store, and the soak")
    parser.add_argument("--store", action="append", choices=STORES, help="only this one; may be repeated")
    parser.add_argument("--workload", action="append", choices=WORKLOADS, help="only this one; may be repeated")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=1, help="of the times of faults and of the workers' turns")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")
    parser.add_argument("--keep", metavar="FOLDER", help="keep logs and histories there")
    parser.add_argument("--only-mutants", action="store_true", help=f"only the {len(MUTANTS)} planted bugs")
    parser.add_argument("--no-mutants", action="store_true", help="no planted bugs")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
