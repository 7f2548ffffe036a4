"""A conformance suite for HTTP idempotency: run it against a service, whatever language that is written in.

    python -m solely.testing.http_idempotency http://127.0.0.1:8000/orders

or, in pytest:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
    def test_conformance(check): check(Target(url="http://127.0.0.1:8000/orders"))

The checks cover draft-ietf-httpapi-idempotency-key-header-06, the Structured Fields of RFC 9651, and what a careful
service adds ("safety"). The suite needs only the standard library.
"""

from .checking import Check, CheckOutcome, Nonconforming, Result, outcome_of
from .checks import CHECKS, run, table
from .target import NotGiven, Target, TargetResponse

__all__ = [
    "CHECKS",
    "Check",
    "CheckOutcome",
    "Nonconforming",
    "NotGiven",
    "Result",
    "Target",
    "TargetResponse",
    "outcome_of",
    "run",
    "table",
]
