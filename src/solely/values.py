"""How the outcome of a claim is kept: one byte that tells its form, then the outcome itself.

b…  bytes as they are                 f…  a failure that is replayed: {"kind": …, "text": …}
j…  JSON                              t…  a tombstone: done once, and why the result was not kept
"""

from __future__ import annotations

import json
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined] # missing in typeshed
from typing import Any

from .errors import InvalidInput, NotKept, Unreadable, WorkFailed, not_ours
from .rules import MAX_VALUE_BYTES

_BYTES, _JSON, _FAILURE, _TOMBSTONE = b"bjft"
_MAX_TEXT = 2_000  # characters of a failure's message: what a person reads, not a dump

_writer = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False)
# The same in C, made once: encode() makes one at each call, which takes longer than most results.
_quickly = c_make_encoder and c_make_encoder(
    None, _writer.default, encode_basestring, None, ":", ",", False, False, True
)
_reader = json.JSONDecoder()


def encode(value: Any) -> bytes:
    """The value as it is kept; InvalidInput if it is neither bytes nor JSON-able."""
    if isinstance(value, bytes):
        return b"b" + value
    try:
        return b"j" + _to_json(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        why = "it contains itself, or is nested too deep" if isinstance(error, RecursionError) else error
        raise InvalidInput(
            f"a result must be bytes or JSON-able, not {type(value).__name__}: {why}; "
            "publish what can be kept of it, or publish_tombstone()"
        ) from None


def _to_json(value: Any) -> str:
    return "".join(_quickly(value, 0)) if _quickly is not None else _writer.encode(value)


def too_large(kept: bytes) -> str:
    """Why it cannot be kept, or "": the first byte does not count."""
    size = len(kept) - 1
    return f"the result has {size} bytes; the most that is kept is {MAX_VALUE_BYTES}" if size > MAX_VALUE_BYTES else ""


def tombstone(why: str) -> bytes:
    """Kept where a result is not: the work was done and is not done again."""
    return b"t" + why[:_MAX_TEXT].encode(errors="replace")


def failure(error: BaseException) -> bytes:
    """A failure that everyone after is told instead of running the work again."""
    return b"f" + _to_json([type(error).__name__, str(error)[:_MAX_TEXT]]).encode(errors="replace")


def is_tombstone(kept: bytes | None) -> bool:
    """True if the work was done and its result was not kept."""
    return kept is None or kept[:1] == b"t"


def decode(kept: bytes | None, key: str) -> Any:
    """The value; raises what is kept instead of one: WorkFailed, or NotKept for a tombstone; Unreadable if it is not
    ours."""
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
        why = body.decode(errors="replace") or "no reason is known"
        raise NotKept(f"the work of {key!r} was done once, and its result was not kept: {why}", key=key)
    raise Unreadable(f"claim {key!r} was finished by a newer version, or by something else: form {form:#x}", key=key)


def _read(body: bytes, key: str) -> Any:
    """What the JSON says; else Unreadable."""
    try:
        return _parsed(body.decode())
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"the result of claim {key!r} cannot be read: {not_ours(error)}", key=key) from None


def _parsed(text: str) -> Any:
    """What we wrote ourselves has no space around it, for which the decoder looks at length."""
    try:
        value, end = _reader.scan_once(text, 0)  # type: ignore[attr-defined] # public, but missing in typeshed
    except StopIteration:
        end = -1
    return value if end == len(text) else _reader.decode(text)


def check(kept: bytes) -> None:
    """Returns if `decode` can read this, and everybody can be shown it; else ValueError."""
    form = kept[0] if kept else 0
    if form in (_BYTES, _TOMBSTONE):
        return
    if form not in (_JSON, _FAILURE):
        raise ValueError(f"{kept[:1]!r} tells no form of an outcome")
    try:
        value = _parsed(kept[1:].decode())
        if b"\\u" in kept:
            _to_json(value).encode()  # UnicodeEncodeError for half of a surrogate pair, which no text can have
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None
    if form == _FAILURE and not (isinstance(value, list) and [type(part) for part in value] == [str, str]):
        raise ValueError("a failure is the name of its class and its message")


def decoded(kept: bytes | None, key: str) -> Any:
    """The value; None if something else is kept instead of one, or it cannot be read."""
    try:
        return decode(kept, key)
    except (NotKept, WorkFailed, Unreadable):
        return None


def kept_failure(kept: bytes | None, key: str) -> WorkFailed | None:
    """The failure, if that is what is kept; Unreadable if it is not as we keep one."""
    if not kept or kept[0] != _FAILURE:
        return None
    told = _read(kept[1:], key)
    if not (type(told) is list and list(map(type, told)) == [str, str]):
        raise Unreadable(f"the failure of claim {key!r} was kept by something else: {told!r:.80}", key=key)
    kind, text = told
    message = f"the work of {key!r} failed and is not run again: {kind}: {text}"
    return WorkFailed(message, key=key, kind=kind, text=text)


def is_expected(kept: bytes | None, expected: Any, key: str) -> bool:
    """True if this is what is kept: a value, or the WorkFailed or NotKept that is told instead of one."""
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
    return json.dumps(value, sort_keys=True)  # as text, since to Python 1 == True == 1.0
