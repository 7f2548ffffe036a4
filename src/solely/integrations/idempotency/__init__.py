"""HTTP idempotency keys (draft-ietf-httpapi-idempotency-key-header): pure rules, for `asgi` and `wsgi` alike."""

from .guard import Guard, Ticket
from .key import parse_key
from .problems import INCOMPLETE, PROBLEMS, TOO_LARGE, ProblemKind
from .request import Headers, Request
from .response import Answer, Record
from .rules import Rules, is_transient
from .tape import Let, Step, Tape, Unfinished

__all__ = [
    "INCOMPLETE",
    "PROBLEMS",
    "TOO_LARGE",
    "Answer",
    "Guard",
    "Headers",
    "Let",
    "ProblemKind",
    "Record",
    "Request",
    "Rules",
    "Step",
    "Tape",
    "Ticket",
    "Unfinished",
    "is_transient",
    "parse_key",
]
