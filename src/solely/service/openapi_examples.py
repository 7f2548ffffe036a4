"""Examples for the OpenAPI document: made from the schemas, so that each is valid, with values that a reader knows.

A field gets the first value of its name in VALUES (`example_values`) that its schema allows; other fields get a value
of their type. A request has the required fields and those of SHOWN; a response has all fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from .example_values import AT, FIELDS, KEY, KEYS, PAYLOAD, SHOWN, TEXT_AT, TIMES, VALUES

Schema = Mapping[str, Any]


class Examples:
    """Makes examples of schemas that may refer to `components`."""

    def __init__(self, components: Mapping[str, Any]) -> None:
        self._components = components

    def request(self, schema: Schema, tag: str) -> Any:
        """A request body: what must be sent, and what most callers send."""
        return _Maker(self._components, tag, lambda name, required: name in required or name in SHOWN).make(schema)

    def response(self, schema: Schema, tag: str) -> Any:
        """A response with all its fields."""
        return _Maker(self._components, tag, lambda name, required: True).make(schema)

    def parameter(self, schema: Schema, name: str, tag: str) -> Any:
        """The value of a path or query parameter."""
        return _Maker(self._components, tag, lambda name, required: True).make(schema, name)


class _Maker:
    def __init__(self, components: Mapping[str, Any], tag: str, shows: Callable[[str, tuple[str, ...]], bool]) -> None:
        self._components = components
        self._tag = tag
        self._shows = shows
        self._within: list[str] = []  # components that are being made: one that contains itself ends there

    def make(self, schema: Schema, name: str = "") -> Any:
        if "$ref" in schema:
            return self._named(schema["$ref"].rpartition("/")[2], name)
        for value in self._known(name):
            if allows(schema, value):
                return value
        if "enum" in schema or "const" in schema:
            return schema.get("const", schema.get("enum", [None])[0])
        if alternatives := [each for each in _alternatives(schema) if each.get("type") != "null"]:
            return self.make(alternatives[0], name)
        return getattr(self, f"_{_kind(schema)}", self._anything)(schema, name)

    def _named(self, component: str, name: str) -> Any:
        if component in self._within:
            return {}
        self._within.append(component)
        made = self.make(self._components[component], name)
        self._within.pop()
        if isinstance(made, dict):
            made.update(FIELDS.get(component, {}))
        return made

    def _known(self, name: str) -> tuple[Any, ...]:
        if name in ("key", "keys", "subject"):
            key = KEYS.get(self._tag, KEY)
            return (*VALUES.get(f"{self._tag}.{name}", ()), key, [key])
        scoped = (*VALUES.get(f"{self._tag}.{name}", ()), *VALUES.get(name, ()))
        return scoped or ((AT, TEXT_AT) if TIMES.search(name) else ())

    def _object(self, schema: Schema, name: str) -> dict[str, Any]:
        properties = schema.get("properties", {})
        if not properties:
            values = schema.get("additionalProperties")
            return {"name": self.make(values, "text")} if isinstance(values, dict) else {}
        required = tuple(schema.get("required", ()))
        either = [each["required"][0] for each in schema.get("oneOf", ()) if "required" in each]
        without, required = set(either[1:]), (*required, *either[:1])
        shown = [each for each in properties if each not in without and self._shows(each, required)]
        return {each: self.make(properties[each], each) for each in shown}

    def _array(self, schema: Schema, name: str) -> list[Any]:
        if places := schema.get("prefixItems"):  # a tuple
            return [self.make(each) for each in places]
        return [self.make(schema.get("items") or {}, name.removesuffix("s"))]

    def _string(self, schema: Schema, name: str) -> str:
        if schema.get("format") == "date-time":
            return TEXT_AT
        if schema.get("contentEncoding") == "base64":
            return "eyJvcmRlciI6ICJvcmRlci03In0="
        candidates = (name.replace("_", "-") or "text", "web", "A", "0" * 32)
        return next((each for each in candidates if allows(schema, each)), "text")

    def _number(self, schema: Schema, name: str) -> float:
        return float(max(schema.get("minimum", 1.5), min(1.5, schema.get("maximum", 1.5))))

    def _integer(self, schema: Schema, name: str) -> int:
        return int(max(schema.get("minimum", 1), min(1, schema.get("maximum", 1))))

    def _boolean(self, schema: Schema, name: str) -> bool:
        return True

    def _null(self, schema: Schema, name: str) -> None:
        return None

    def _anything(self, schema: Schema, name: str) -> Any:
        return PAYLOAD


def _kind(schema: Schema) -> str:
    """The type that the schema names, the first of several; `anything` if it names none."""
    named = schema.get("type", "anything")
    return named if isinstance(named, str) else next((each for each in named if each != "null"), "null")


def _alternatives(schema: Schema) -> list[Schema]:
    """The members of a union; none for an object of which one of several fields is required."""
    if schema.get("type") == "object":
        return []
    return [*schema.get("anyOf", ()), *schema.get("oneOf", ())]


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "number": (int, float), "integer": (int,), "boolean": (bool,), "array": (list,),
    "object": (dict,), "null": (type(None),),
}  # fmt: skip


def allows(schema: Schema, value: Any) -> bool:
    """True if the schema allows this plain value: its type, its bounds, its pattern. A reference is not followed."""
    if "$ref" in schema:
        return False
    if "enum" in schema:
        return value in schema["enum"]
    if alternatives := _alternatives(schema):
        return any(allows(each, value) for each in alternatives)
    kind = _kind(schema)
    if kind not in _TYPES:
        return kind == "anything"
    if (
        "const" in schema
        or "prefixItems" in schema
        or not isinstance(value, _TYPES[kind])
        or (isinstance(value, bool) and kind != "boolean")
    ):
        return False
    if isinstance(value, str):
        return _allows_text(schema, value)
    if isinstance(value, list):
        return all(allows(schema.get("items") or {}, each) for each in value)
    if isinstance(value, dict):
        values = schema.get("additionalProperties", {})
        checked = value.values() if isinstance(values, dict) else ()
        return "properties" not in schema and all(allows(values, each) for each in checked)
    return value is None or (schema.get("minimum", value) <= value <= schema.get("maximum", value))


def _allows_text(schema: Schema, value: str) -> bool:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        return False
    if schema.get("contentEncoding") == "base64" and not value.endswith("="):
        return False
    if schema.get("format") == "date-time" and value != TEXT_AT and not value.endswith("Z"):
        return False
    pattern = schema.get("pattern")
    return pattern is None or re.search(pattern, value) is not None
