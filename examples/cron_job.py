"""A cron job on several hosts: all of them start it, one of them does the work.

    0 3 * * *  SOLELY_URL=redis://store.example.org python -m examples.cron_job

For a job that is no Python, `solely run --lock nightly-report --at-least 10m --skip-busy -- ./report.sh` does the same.
"""

# ruff: noqa: T201 (an example prints)

from __future__ import annotations

import solely
from solely.integrations.cron import one_host


def main() -> None:
    with solely.Client() as once:
        # A host that dies blocks the others for an hour at most. The key stays closed for ten minutes after the start,
        # which must be more than the difference between the clocks of the hosts.
        @one_host(once, "nightly-report", at_most_for=3600, at_least_for=600)
        def report() -> str:
            return "the report was made"

        print(report() or "another host makes the report")


if __name__ == "__main__":
    main()
