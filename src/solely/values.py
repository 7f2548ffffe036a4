"""The stored form of a claim's outcome: one form byte, then the outcome.

b…  bytes                             f…  a failure that is replayed: [class, message]
j…  JSON                              t…  a tombstone: done once, and why the result was not kept
"""

from __future__ import annotations

import json
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined] # missing in typeshed
from typing import Any

from .errors import InvalidInput, NotKept, Unreadable, WorkFailed, not_ours
from .rules import MAX_VALUE_BYTES

_BYTES, _JSON, _FAILURE, _TOMBSTONE = b"bjft"
_MAX_TEXT = 2_000  # characters of a failure's message: enough for a person, too short for a dump

_writer = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False)
# The same in C, created once: encode() creates one per call, which takes longer than most results.
_quickly = c_make_encoder and c_make_encoder(
    None, _writer.default, encode_basestring, None, ":", ",", False, False, True
)
_reader = json.JSONDecoder()


def encode(value: Any) -> bytes:
    """The value in its stored form; raises InvalidInput if it is neither bytes nor JSON-serializable."""
    if isinstance(value, bytes):
        return b"b" + value
    try:
        return b"j" + _to_json(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        why = "it contains itself, or is nested too deep" if isinstance(error, RecursionError) else error
        raise InvalidInput(
            f"a result must be bytes or JSON-serializable, not {type(value).__name__}: {why}; "
            "publish a part that is, or call publish_tombstone()"
        ) from None


def _to_json(value: Any) -> str:
    return "".join(_quickly(value, 0)) if _quickly is not None else _writer.encode(value)


def too_large(kept: bytes) -> str:
    """Why the result is too large to keep, or "". The form byte does not count."""
    size = len(kept) - 1
    return f"the result has {size} bytes; the maximum is {MAX_VALUE_BYTES}" if size > MAX_VALUE_BYTES else ""


def tombstone(why: str) -> bytes:
    """Stored in place of a result: the work was done and is not run again."""
    return b"t" + why[:_MAX_TEXT].encode(errors="replace")


def failure(error: BaseException) -> bytes:
    """A failure as an outcome: later callers get WorkFailed, and the work is not run again."""
    return b"f" + _to_json([type(error).__name__, str(error)[:_MAX_TEXT]]).encode(errors="replace")


def is_tombstone(kept: bytes | None) -> bool:
    """True if the work was done and its result was not kept."""
    return kept is None or kept[:1] == b"t"


def decode(kept: bytes | None, key: str) -> Any:
    """The value; raises WorkFailed for a failure, NotKept for a tombstone, Unreadable if Solely did not write it."""
    form = kept[0] if kept else _TOMBSTONE
    body = kept[1:] if kept else b""
    if form == _BYTES:
        return body
    if form == _JSON:
        return _read(body, key)
    failed = kept_failure(kept, key)
    if failed is not None:
        raise failed
    if form == _TOMBSTONE:
        why = body.decode(errors="replace") or "the reason is unknown"
        raise NotKept(f"the work of {key!r} was done once, and its result was not kept: {why}", key=key)
    raise Unreadable(f"a newer version or another program finished claim {key!r}: form {form:#x}", key=key)


def _read(body: bytes, key: str) -> Any:
    """Parses the JSON; raises Unreadable if it is invalid."""
    try:
        return _parsed(body.decode())
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"the result of claim {key!r} is unreadable: {not_ours(error)}", key=key) from None


def _parsed(text: str) -> Any:
    """Parses JSON. Ours has no whitespace around it, which JSONDecoder.decode would spend time to skip."""
    try:
        value, end = _reader.scan_once(text, 0)  # type: ignore[attr-defined] # public, but missing in typeshed
    except StopIteration:
        end = -1
    return value if end == len(text) else _reader.decode(text)


def check(kept: bytes) -> None:
    """Checks that `decode` can read this and that it encodes as UTF-8; raises ValueError if not."""
    form = kept[0] if kept else 0
    if form in (_BYTES, _TOMBSTONE):
        return
    if form not in (_JSON, _FAILURE):
        raise ValueError(f"{kept[:1]!r} is not an outcome form")
    try:
        value = _parsed(kept[1:].decode())
        if b"\\u" in kept:
            _to_json(value).encode()  # raises UnicodeEncodeError for half of a surrogate pair
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None
    if form == _FAILURE and not (isinstance(value, list) and [type(part) for part in value] == [str, str]):
        raise ValueError("a failure must be a list of two texts: its class and its message")


def decoded(kept: bytes | None, key: str) -> Any:
    """The value; None for a failure or a tombstone, or if it is unreadable."""
    try:
        return decode(kept, key)
    except (NotKept, WorkFailed, Unreadable):
        return None


def kept_failure(kept: bytes | None, key: str) -> WorkFailed | None:
    """The failure, if the outcome is one; raises Unreadable if Solely did not write it."""
    if not kept or kept[0] != _FAILURE:
        return None
    parts = _read(kept[1:], key)
    if not (type(parts) is list and list(map(type, parts)) == [str, str]):
        raise Unreadable(f"another program wrote the failure of claim {key!r}: {parts!r:.80}", key=key)
    kind, text = parts
    message = f"the work of {key!r} failed and is not run again: {kind}: {text}"
    return WorkFailed(message, key=key, kind=kind, text=text)


def is_expected(kept: bytes | None, expected: Any, key: str) -> bool:
    """True if the stored outcome is the expected one: a value, or the WorkFailed or NotKept raised in its place."""
    try:
        value = decode(kept, key)
    except WorkFailed as failed:
        return isinstance(expected, WorkFailed) and (failed.kind, failed.text) == (expected.kind, expected.text)
    except NotKept:
        return isinstance(expected, NotKept)
    if isinstance(expected, WorkFailed | NotKept) or isinstance(value, bytes) != isinstance(expected, bytes):
        return False
    return (
        value == expected if isinstance(value, bytes) else _sorted(value) == _sorted(json.loads(encode(expected)[1:]))
    )


def _sorted(value: Any) -> str:
    return json.dumps(value, sort_keys=True)  # compared as text, since in Python 1 == True == 1.0
