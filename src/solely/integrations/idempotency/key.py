"""The Idempotency-Key field: one Structured Field String (RFC 9651), within the limits that the policy publishes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...errors import InvalidInput

FIELD = "Idempotency-Key"
MAX_KEY = 400  # characters, whatever the rules allow: what the 512 of a store leave beside realm and principal

_STRING = rb'"(?:[ !#-\[\]-~]|\\["\\])*"'
_KINDS = {  # the other bare items of RFC 9651, so that a refusal can say what was sent instead
    "a number": rb"-?[0-9]{1,12}\.[0-9]{1,3}|-?[0-9]{1,15}",
    "a token": rb"[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*",
    "a byte sequence": rb":[A-Za-z0-9+/=]*:",
    "a boolean": rb"\?[01]",
    "a date": rb"@-?[0-9]{1,15}",
    "a display string": rb'%"(?:[ !#-$&-~]|%[0-9a-f]{2})*"',
}
_BARE = b"|".join([_STRING, *_KINDS.values()])
_PARAMETERS = rb"(?:; *[a-z*][a-z0-9_.*-]*(?:=(?:" + _BARE + rb"))?)*"  # allowed on any item, and ignored by ours
_ITEM = re.compile(rb" *(" + _STRING + rb")" + _PARAMETERS + rb" *")
_LIST = re.compile(rb" *(?:" + _BARE + rb")" + _PARAMETERS + rb" *,.*", re.DOTALL)
# Without the quotes, as many clients send it. A comma would be ambiguous: proxies join repeated fields with it.
_UNQUOTED = re.compile(rb" *([!#-+\--~]+) *")
_ESCAPE = re.compile(rb'\\(["\\])')


def parse_key(lines: Sequence[bytes], *, bare: bool = False) -> str:
    """The key in the field lines of one request; InvalidInput, which says what was sent instead, if there is none.

    With `bare`, a key without its quotes is accepted too, and is the same key.
    """
    if len(lines) != 1:
        raise InvalidInput(f"{FIELD} was sent {len(lines)} times; send it once")
    item = _ITEM.fullmatch(lines[0])
    if item is None and bare and (unquoted := _UNQUOTED.fullmatch(lines[0])):
        return unquoted[1].decode("ascii")
    if item is None:
        raise InvalidInput(
            f"{FIELD} must be a Structured Field String, as in"
            f' {FIELD}: "8e03978e-40d5-43e8-bc93-6894a57f9324"; this is {_what(lines[0])}'
        )
    return _ESCAPE.sub(rb"\1", item[1][1:-1]).decode("ascii")


def fitting_key(key: str, form: re.Pattern[str]) -> str:
    """The key if it has the published form; else InvalidInput."""
    if len(key) > MAX_KEY or not form.fullmatch(key):
        raise InvalidInput(f"this {FIELD} does not have the published form {form.pattern}; use a UUID")
    return key


def _what(line: bytes) -> str:
    if _LIST.fullmatch(line):
        return "a list; send one string"
    for name, form in _KINDS.items():
        if re.fullmatch(rb" *(?:" + form + rb")" + _PARAMETERS + rb" *", line):
            return f"{name}; put it into double quotes"
    return 'no structured field at all; put the key into double quotes, and a backslash only before " or \\'
