"""The API reference for people: the OpenAPI document as pages, one per tag.

They are rendered here instead of by a viewer in the browser: without any script, so that the content security policy
stays as strict as that of all pages, and nothing is loaded from another host.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from ..openapi import NDJSON, current
from ..problems import NOT_FOUND, Problem
from ..routes import Answer, Call, Route
from .rendering import READ_PAGE, Page, View, show

PLACE = "/reference"
INDEX = Page("API", "solely:reference.html", PLACE)
TAG = Page("API", "solely:reference_tag.html", PLACE)
_DEEPEST = 3  # levels of fields within fields that a table shows: below that, the example shows more


class ReferenceField(Answer):
    """A line of a table: a parameter, or a field of a body."""

    name: str
    type: str
    required: bool
    about: str


class ReferenceResponse(Answer):
    """A response: its example if the request succeeded, else what is wrong."""

    status: str
    about: str
    media: str
    example: str
    fields: list[ReferenceField]


class ReferenceOperation(Answer):
    """An endpoint as its page shows it."""

    id: str
    method: str
    path: str
    summary: str
    about: str
    parameters: list[ReferenceField]
    body: list[ReferenceField]
    request: str  # a command that sends the example
    responses: list[ReferenceResponse]
    refusals: list[ReferenceResponse]


class ReferenceTag(Answer):
    """A heading of the reference, and its operations."""

    name: str
    about: str
    operations: list[ReferenceOperation]


class ApiReference(Answer):
    """All headings; their operations are in the document itself."""

    tags: list[ReferenceTag]


async def index(call: Call[None, View]) -> object:
    """The list of all operations."""

    async def load() -> ApiReference:
        return ApiReference(tags=[_tag(each, call) for each in current(call)["tags"]])

    return await show(call, INDEX, load)


async def tag(call: Call[None, View]) -> object:
    """The operations of one tag."""
    found = [each for each in current(call)["tags"] if each["name"] == call.params["tag"]]
    if not found:
        raise Problem(NOT_FOUND, f"the API has no heading {call.params['tag']!r}; {PLACE} lists all of them")

    async def load() -> ApiReference:
        return ApiReference(tags=[_tag(found[0], call)])

    return await show(call, TAG._replace(title=f"API: {found[0]['name']}"), load)


def _tag(wanted: Mapping[str, str], call: Call[Any, Any]) -> ReferenceTag:
    document = current(call)
    base = f"{call.scope.get('scheme', 'http')}://{call.header('host')}"
    operations = [
        _operation(method, path, operation, document["components"]["schemas"], base)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if wanted["name"] in operation["tags"]
    ]
    return ReferenceTag(name=wanted["name"], about=wanted["description"], operations=operations)


def _operation(method: str, path: str, given: dict[str, Any], schemas: dict[str, Any], base: str) -> ReferenceOperation:
    parameters = given.get("parameters", [])
    media, body = next(iter(given.get("requestBody", {}).get("content", {}).items()), ("", None))
    responses = [_response(status, each, schemas) for status, each in given["responses"].items()]
    return ReferenceOperation(
        id=given["operationId"],
        method=method.upper(),
        path=path,
        summary=given["summary"],
        about=given.get("description", ""),
        parameters=[_field(each["name"], each["schema"], each["required"]) for each in parameters],
        body=[] if body is None else list(_fields(body["schema"], schemas)),
        request=command(method.upper(), path, parameters, (media, body), base, guarded=bool(given["security"])),
        responses=[each for each in responses if each.example or each.status.startswith("2")],
        refusals=[each for each in responses if not (each.example or each.status.startswith("2"))],
    )


def _response(status: str, given: dict[str, Any], schemas: dict[str, Any]) -> ReferenceResponse:
    for media, content in given.get("content", {}).items():
        if "example" in content:
            example = content["example"]
            text = example if isinstance(example, str) and "schema" not in content else _json(example)
            fields = list(_fields(content["schema"], schemas)) if "schema" in content else []
            return ReferenceResponse(
                status=status, about=given["description"], media=media, example=text, fields=fields
            )
    return ReferenceResponse(status=status, about=given["description"], media="", example="", fields=[])


def command(
    method: str,
    path: str,
    parameters: list[dict[str, Any]],
    content: tuple[str, dict[str, Any] | None],
    base: str,
    *,
    guarded: bool,
) -> str:
    """A curl command that sends the example of an operation; `content` is the media type and the body."""
    media, body = content
    query = {each["name"]: each["example"] for each in parameters if each["in"] == "query" and "example" in each}
    for each in parameters:
        if each["in"] == "path":
            path = path.replace(f"{{{each['name']}}}", quote(str(each["example"]), safe=""))
    words = ["curl", "-s", *([] if method in ("GET", "POST") and (body or method == "GET") else ["-X", method])]
    words.append(shlex.quote(f"{base}{path}" + (f"?{urlencode(query)}" if query else "")))
    lines = [" ".join(words)]
    if guarded:
        lines.append('-H "Authorization: Bearer $SOLELY_TOKEN"')
    if body is not None:
        lines += [f"-H 'Content-Type: {media}'", f"--data-binary {shlex.quote(sent_as(media, body['example']))}"]
    return " \\\n  ".join(lines)


def sent_as(media: str, example: Any) -> str:
    """The example as the body of a request: JSON, or a line of it for each item."""
    return "\n".join(map(json.dumps, example)) if media == NDJSON else json.dumps(example)


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


# -- schemas as tables


def _fields(
    schema: Mapping[str, Any], schemas: dict[str, Any], prefix: str = "", depth: int = 1
) -> Iterator[ReferenceField]:
    """The fields of an object, of the objects in a list, and of the first of several alternatives."""
    schema, prefix = _object_in(schema, schemas, prefix)
    required = schema.get("required", ())
    for name, each in schema.get("properties", {}).items():
        yield _field(prefix + name, each, name in required, schemas)
        if depth < _DEEPEST:
            yield from _fields(each, schemas, f"{prefix}{name}.", depth + 1)


def _field(
    name: str, schema: Mapping[str, Any], required: bool, schemas: Mapping[str, Any] | None = None
) -> ReferenceField:
    return ReferenceField(name=name, type=_type(schema), required=required, about=_about(schema, schemas))


def _object_in(schema: Mapping[str, Any], schemas: dict[str, Any], prefix: str) -> tuple[Mapping[str, Any], str]:
    while True:
        if "$ref" in schema:
            schema = schemas[schema["$ref"].rpartition("/")[2]]
        elif schema.get("type") == "array":
            schema, prefix = schema.get("items", {}), f"{prefix.removesuffix('.')}[]."
        elif "properties" not in schema and (several := [*schema.get("anyOf", ()), *schema.get("oneOf", ())]):
            schema = several[0]
        else:
            return schema, prefix


def _type(schema: Mapping[str, Any]) -> str:
    """The type in words: `string or null`, `list of HeldLock`."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "enum" in schema:
        return " or ".join(json.dumps(each) for each in schema["enum"])
    if several := [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
        return " or ".join(dict.fromkeys(map(_type, several)))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any JSON"))


def _about(schema: Mapping[str, Any], schemas: Mapping[str, Any] | None = None) -> str:
    """The description, the bounds and the default."""
    described = schema
    if "$ref" in schema and schemas:
        described = schemas[schema["$ref"].rpartition("/")[2]]
    several = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    text = described.get("description") or next((each["description"] for each in several if "description" in each), "")
    bounds = [f"{word} {schema[name]:,}" for name, word in _BOUNDS.items() if isinstance(schema.get(name), int | float)]
    default = schema.get("default")
    if default not in (None, "", [], {}):
        bounds.append(f"default {json.dumps(default)}")
    return "; ".join([each for each in (text, ", ".join(bounds)) if each])


_BOUNDS = {"minimum": "at least", "maximum": "at most"}

ROUTES = [
    Route("GET", PLACE, READ_PAGE, index, hidden=True),
    Route("GET", f"{PLACE}/{{tag}}", READ_PAGE, tag, hidden=True),
]
