"""python -m solely.testing.http_idempotency URL: runs every check against a service and prints the table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from . import CheckOutcome, Target, run, table


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if no check failed, else 1."""
    options = _options(arguments)
    target = Target(
        url=options.url,
        other_url=options.other,
        slow_url=options.slow,
        failing_url=options.failing,
        crashing_url=options.crashing,
        large_url=options.large,
        cookie_url=options.cookie,
        max_request=options.max_request,
        headers=dict(options.header),
        other_headers=dict(options.other_header),
        **({"body": options.body.encode()} if options.body else {}),
        **({"other_body": options.other_body.encode()} if options.other_body else {}),
    )
    results = run(target)
    sys.stdout.write(table({options.url: results}) + "\n")
    return int(any(result.outcome is CheckOutcome.FAILED for result in results))


def _header(text: str) -> tuple[str, str]:
    name, _, value = text.partition(":")
    return name.strip(), value.strip()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m solely.testing.http_idempotency", description=__doc__)
    parser.add_argument("url", help="accepts a POST; each execution responds 2xx with a unique body")
    parser.add_argument("--other", metavar="URL", default="", help="another operation")
    parser.add_argument("--slow", metavar="URL", default="", help="takes about 0.6 s")
    parser.add_argument("--failing", metavar="URL", default="", help="responds 5xx to the first request of a payload")
    parser.add_argument("--crashing", metavar="URL", default="", help="like --failing, by an exception")
    parser.add_argument("--large", metavar="URL", default="", help="responds with more than the service stores")
    parser.add_argument("--cookie", metavar="URL", default="", help="responds with a Set-Cookie")
    parser.add_argument("--max-request", metavar="BYTES", type=int, default=0, help="larger bodies get 413")
    parser.add_argument(
        "--header", type=_header, action="append", default=[], help="added to every request: 'Name: value'"
    )
    parser.add_argument(
        "--other-header", type=_header, action="append", default=[], help="authenticates another principal"
    )
    parser.add_argument("--body", default="", help="the payload, as JSON")
    parser.add_argument("--other-body", default="", help="another payload")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
