"""Values that callers send and that no program likes, and every place of a request where one may be put."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str | int, ...]  # of a field: names of objects, and places in arrays

MARK = "@@nasty@@"  # a value that is replaced in the encoded body
_FREE = "free"  # a name in an object of free form


def _nested(depth: int) -> str:
    return "[" * depth + "]" * depth


# What is put into every field in any case: each of these has been an error of the service.
COMMON: dict[str, str | bytes] = {
    "1e999": "1e999",
    "5000 digits": "9" * 5000,
    "2**64": str(2**64),
    "half a surrogate pair": '"\\ud800"',
    "NUL": '"a\\u0000b"',
    "NUL in a key": '{"\\u0000": 1}',
    "not UTF-8": b'"\xff\xfe"',
    "500 levels": _nested(500),
    "after the year 9999": '"9999-12-31T23:59:59-12:00"',
    "null": "null",
    "an object": '{"a": [1, {"b": null}]}',
    "nothing": '""',
}  # fmt: skip
# All others: a field gets some of these, the next field the next ones, and so on; with `--all` it gets all.
OTHERS: dict[str, str | bytes] = {
    "-1e999": "-1e999", "1e-999": "1e-999", "1e400": "1e400", "1e308": "1e308", "-0.0": "-0.0", "-1": "-1",
    "-5000 digits": "-" + "9" * 5000, "0.1 with 5000 digits": "0." + "1" * 5000, "1e18": "1e18", "1e12": str(10**12),
    "2**63": str(2**63), "2**63-1": str(2**63 - 1), "-2**63-1": str(-(2**63) - 1), "2**53+1": str(2**53 + 1),
    "NaN": "NaN", "Infinity": "Infinity", "-Infinity": "-Infinity", "true": "true", "1": "1", "1.5": "1.5",
    "the other half": '"a\\udc00b"', "half a pair in a key": '{"\\ud800": 1}', "half a pair within": '["\\udfff"]',
    "half a pair, encoded": b'"\xed\xa0\x80"', "bare NUL": b'"a\x00b"', "NUL alone": '"\\u0000"',
    "NUL within": '{"a": ["\\u0000"]}', "cut UTF-8": b'"a\xc3"', "no UTF-8 in a key": b'{"\xff": 1}',
    "5000 levels": _nested(5000), "5000 levels as text": json.dumps(_nested(5000)),
    "500 objects": '{"a":' * 500 + "1" + "}" * 500, "no end": "[" * 500, "30 levels": _nested(28),
    "a key twice": '{"a": 1, "a": 2}', "an empty key": '{"": 1}', "a BOM": '"\\ufeff"',
    "before the year 1": '"0001-01-01T00:00:00+14:00"', "the year 10000": '"10000-01-01T00:00:00Z"',
    "the last moment": '"9999-12-31T23:59:59.999999Z"', "February 30": '"2026-02-30T00:00:00Z"',
    "9999 in seconds": "253402300800", "year 0 in seconds": "-62135596801", "1e12 days": '"1000000000000d"',
    "-1 s": '"-1s"', "inf": '"inf"', "nan s": '"nans"', "60000 characters": json.dumps("x" * 60_000),
    "2000 characters": json.dumps("x" * 2000), "512 characters": json.dumps("x" * 512), "500 umlauts": f'"{"ü" * 500}"',
    "an empty list": "[]", "an empty object": "{}", "text": '"text"', "a list of null": "[null]", "lists": "[[1]]",
    "2000 keys": json.dumps({str(number): number for number in range(2000)}), "2000 items": json.dumps(["x"] * 2000),
    "right to left": '"\u202eabc\u202c"', "200 accents": '"a%s"' % ("\u0301" * 200), "U+FFFF": '"\uffff"',
    "smileys": '"%s"' % ("\U0001f600" * 50), "controls": '"\\u0001\\u007f\\u0085\\u2028"', "lines": '"a\\r\\nb: c"',
    "a blank": '" "', "a path": '"../../etc/passwd"', "percent": '"%00%ff%2f"', "braces": '"{a}{{}}%s%(x)s"',
    "like": '"%_\\\\"', "quotes": '"\'\\"`;--"', "our own name": '"~triggers/x"', "a bad pattern": '"((("',
    "a pattern": '"(a+)+$"', "a bad schedule": '"99 99 99 99 99"', "a bad address": '"http://[::1"',
    "NUL in an address": '"http://a\\u0000b/"', "a bad port": '"http://a:99999/"',
}  # fmt: skip
DEEPEST = "[" * 100_000 + "]" * 100_000  # more than most routes read
# As texts of a form, of a query, or in a path: encoded, as they are sent.
TEXTS = (
    "a%00b", "%FF", "%ED%A0%80", "253402300800", "9999-12-31T23:59:59-12:00", "1e999", "9" * 500, "%00",
    "-1", "nan", "0001-01-01T00:00:00%2B14:00", "10000-01-01", "1e18", "-62135596801", "1000000000000d", "x" * 500,
    "%E2%80%AEabc", "%EF%BF%BF", "%EF%BB%BF", "%25_%5C", "%27%22", "(((", "%5B%7B", "", "null", "..", "%0D%0Aa%3A+b",
    "a=%22%00%22", "severity%3D~%22(a%2B)%2B%24%22", "1.0%2F%00", "1e999%2Fa", "nan%2Fa", "0.1" + "1" * 300, ",",
)  # fmt: skip
HEADERS = (
    b"\xff",
    b"\xc3\xbc",
    b"\xed\xa0\x80",
    b'"',
    b'"\\',
    b'"a\\"b"',
    b"x" * 3000,
    b"9" * 500,
    b" ",
    b"%00",
    b"\\ud800",
)


def encoded(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def values(number: int, share: int) -> Iterator[tuple[str, bytes]]:
    """The values that the field of this number is given, by name: the common ones, and one in `share` of the others."""
    for name, value in COMMON.items():
        yield name, encoded(value)
    for place, (name, value) in enumerate(OTHERS.items()):
        if (place + number) % share == 0:
            yield name, encoded(value)


def texts(number: int, share: int) -> Iterator[str]:
    """The texts that the field of this number is given: two that were errors, and one in `share` of the others."""
    yield from TEXTS[:2]
    yield from (text for place, text in enumerate(TEXTS[2:]) if (place + number) % share == 0)


def fields(schema: Mapping[str, Any], components: Mapping[str, Any], within: tuple[str, ...] = ()) -> Iterator[Path]:
    """Every place of a body of this schema: its fields, those of the objects in it, and one in what has free form."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in within:
            yield from fields(components[name], components, (*within, name))
        return
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        if "type" in each or "$ref" in each:
            yield from fields(each, components, within)
    inside = list[tuple[str | int, Any]](schema.get("properties", {}).items())
    if values := schema.get("additionalProperties"):
        inside.append((_FREE, values))
    elif not inside and schema.get("type", "object") == "object" and not schema.keys() & {"anyOf", "oneOf", "enum"}:
        inside.append((_FREE, None))
    if "items" in schema:
        inside.append((0, schema["items"]))
    inside += enumerate(schema.get("prefixItems", ()))
    for name, each in inside:
        yield (name,)
        if isinstance(each, dict):
            yield from ((name, *rest) for rest in fields(each, components, within))


def leaves(value: Any, within: Path = ()) -> Iterator[Path]:
    """Every place of this body."""
    if within:
        yield within
    for name, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from leaves(each, (*within, name))


def put(body: Any, path: Path, value: Any) -> Any:
    """The body with this value at the place."""
    if not path:
        return value
    name, *rest = path
    if isinstance(name, int):
        items = [*body] if isinstance(body, list) else []
        items += [None] * (name + 1 - len(items))
        items[name] = put(items[name], tuple(rest), value)
        return items
    known = body if isinstance(body, dict) else {}
    return {**known, name: put(known.get(name), tuple(rest), value)}


def body_with(body: Any, path: Path, value: bytes) -> bytes:
    """The encoded body, with these bytes at the place."""
    return json.dumps(put(body, path, MARK)).encode().replace(json.dumps(MARK).encode(), value)
