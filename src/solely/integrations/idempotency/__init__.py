"""HTTP idempotency keys (draft-ietf-httpapi-idempotency-key-header): pure rules, for `asgi` and `wsgi` alike."""

from .checker import KeyChecker, RequestKey
from .key import parse_key
from .problems import INCOMPLETE, PROBLEMS, TOO_LARGE, ProblemKind
from .recorder import KeyAction, ResponseRecorder, Settlement, Step, Unfinished
from .request import Headers, HttpRequest
from .response import HttpResponse, StoredResponse
from .rules import Rules, is_transient

__all__ = [
    "INCOMPLETE",
    "PROBLEMS",
    "TOO_LARGE",
    "Headers",
    "HttpRequest",
    "HttpResponse",
    "KeyAction",
    "KeyChecker",
    "ProblemKind",
    "RequestKey",
    "ResponseRecorder",
    "Rules",
    "Settlement",
    "Step",
    "StoredResponse",
    "Unfinished",
    "is_transient",
    "parse_key",
]
