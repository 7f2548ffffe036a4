"""OpenAPI 3.1, generated from the mounted routes: what is documented is what is checked."""

from __future__ import annotations

from collections.abc import Iterable
from types import UnionType
from typing import Any, get_args

import msgspec

from .. import __version__
from ..integrations.idempotency import ProblemKind
from . import problems
from .problems import ProblemDocument
from .routes import PUBLIC, WRITE, Bearer, Call, Route, Webhook

_REF = "#/components/schemas/{name}"
_ALWAYS = (
    problems.INVALID, problems.UNKNOWN_HOST, problems.OTHER_ORIGIN, problems.HEADERS_TOO_LARGE, problems.BROKEN,
)  # fmt: skip


def document(routes: Iterable[Route], *, guarded: bool = True) -> dict[str, Any]:
    """The OpenAPI document of these routes, without pages; `guarded` if callers need tokens."""
    shown = [route for route in routes if not route.hidden]
    types = _types(shown)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    known = dict(zip(map(repr, types), schemas, strict=True))
    for each in types:
        if getattr(each, "EITHER", ()):
            components[each.__name__]["oneOf"] = [{"required": [name]} for name in each.EITHER]
    paths: dict[str, dict[str, Any]] = {}
    for route in shown:
        operation = paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, known)
        operation["security"] = [{"bearer": []}] if guarded and isinstance(route.auth, Bearer) else []
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Solely",
            "version": __version__,
            "description": "Work that must happen once, over HTTP. Keys are sent in bodies and queries; times are in "
            f"seconds. {problems.POLICY_PATH} says what a repeat of each request does.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _types(routes: list[Route]) -> list[Any]:
    wanted: dict[str, Any] = {repr(ProblemDocument): ProblemDocument}
    for route in routes:
        for each in (route.body, route.answer, *route.others.values()):
            wanted.update((repr(one), one) for one in _alternatives(each))
    return list(wanted.values())


def _alternatives(wanted: Any) -> tuple[Any, ...]:
    """The members of a union: msgspec cannot describe structs that differ by their fields alone."""
    return () if wanted is None else get_args(wanted) if isinstance(wanted, UnionType) else (wanted,)


def _schema(wanted: Any, known: dict[str, Any]) -> dict[str, Any]:
    schemas: list[dict[str, Any]] = [known[repr(one)] for one in _alternatives(wanted)]
    return schemas[0] if len(schemas) == 1 else {"oneOf": schemas}


def _operation(route: Route, known: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}.{route.name}",
        "tags": [route.noun],
        "summary": route.summary,
        "responses": _responses(route, known),
    }
    about = [*_auth(route), *([f"Again: {route.again}"] if route.again else [])]
    if about:
        operation["description"] = " ".join(about)
    if parameters := [*_in_path(route), *_in_query(route)]:
        operation["parameters"] = parameters
    if route.body is not None:
        kind = "application/x-www-form-urlencoded" if route.form else "application/json"
        kind = "application/x-ndjson" if route.lines else kind
        operation["requestBody"] = {"required": True, "content": {kind: {"schema": _schema(route.body, known)}}}
    return operation


def _auth(route: Route) -> list[str]:
    if isinstance(route.auth, Bearer):
        return [f"Needs the scope {route.auth.scope.name.lower()}."]
    return [f"Needs {route.auth.how}."] if isinstance(route.auth, Webhook) else []


def _responses(route: Route, known: dict[str, Any]) -> dict[str, Any]:
    good = {route.status: route.answer, **route.others}
    responses: dict[str, Any] = {}
    for status, answer in good.items():
        content = {} if answer is None else {"schema": _schema(answer, known)}
        response: dict[str, Any] = {"description": route.summary}
        if answer is not None or route.media != "application/json":
            response["content"] = {route.media: content}
        responses[str(status)] = response
    for kind in _refusals(route):
        response = responses.setdefault(str(kind.status), {"description": kind.title, "content": {}})
        if kind.title not in response["description"]:
            response["description"] += f", or: {kind.title}"
        media, schema = "application/problem+json", known[repr(ProblemDocument)]
        if route.text_errors:
            media, schema = "application/json", {"type": "string"}
        response.setdefault("content", {})[media] = {"schema": schema}
    return responses


def _refusals(route: Route) -> list[ProblemKind]:
    """The problems of this route: its own, and those that follow from its declaration."""
    kinds = [*_ALWAYS]
    if route.body is not None:
        kinds += [problems.NOT_JSON, problems.TOO_LARGE, problems.TOO_SLOW]
    if route.auth != PUBLIC:
        kinds += [problems.NO_TOKEN, problems.SCOPE, problems.AWAY, problems.STORE_FAILED, problems.FULL]
        kinds.append(problems.TOO_MANY_CONNECTIONS)
    if route.auth == WRITE:
        kinds.append(problems.RESERVED_NAME)
    if route.grants:
        kinds.append(problems.STOPPING)
    return [*kinds, *route.refusals]


def _in_path(route: Route) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _in_query(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema = msgspec.json.schema(route.query)
    shape = schema["$defs"][route.query.__name__]
    required = shape.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": each}
        for name, each in shape["properties"].items()
    ]


async def openapi(call: Call[None, None]) -> dict[str, Any]:
    """This document."""
    service = call.service
    guarded = bool(service.tokens)
    if guarded not in service.openapi:  # built once, since anybody may request it
        service.openapi[guarded] = document(call.routes, guarded=guarded)
    return service.openapi[guarded]


ROUTES = [Route("GET", "/openapi.json", PUBLIC, openapi, tag="service")]


def inlined_schema(form: Any) -> dict[str, Any]:
    """The JSON schema of a type without references, to be embedded in another: `extra_json_schema` of a body that is
    any object for its route, whose handler refuses invalid ones in its own words."""
    schema = msgspec.json.schema(form)
    inlined: dict[str, Any] = _inlined({"$ref": schema["$ref"]}, schema["$defs"])
    return inlined


def _inlined(schema: Any, named: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(each, named) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(named[schema["$ref"].rpartition("/")[2]], named)
    return {name: _inlined(each, named) for name, each in schema.items()}
