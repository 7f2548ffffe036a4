"""OpenAPI 3.1, generated from the mounted routes: what is documented is what is checked."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType, UnionType
from typing import Any, get_args

import msgspec
from starlette.responses import Response

from .. import __version__
from ..integrations.idempotency import ProblemKind
from . import problems
from .bodies import to_json
from .example_values import TEXTS
from .openapi_examples import Examples
from .problems import ProblemDocument
from .responses import accepts_gzip
from .routes import PUBLIC, WRITE, Bearer, Call, Route, Webhook
from .service import EncodedDocument

_REF = "#/components/schemas/{name}"
_ALWAYS = (
    problems.INVALID, problems.UNKNOWN_HOST, problems.OTHER_ORIGIN, problems.HEADERS_TOO_LARGE, problems.BROKEN,
)  # fmt: skip


# What each tag is about; an application says it itself.
NDJSON = "application/x-ndjson"
ABOUT = {
    "locks": "One holder at a time, under a lease that ends by itself, with a fence that only grows.",
    "marks": "Dedup: each key is new to exactly one caller, until its mark expires.",
    "claims": "Idempotency: one caller runs the work and publishes its result; all others get that result.",
    "reservations": "One caller may send; the others are suppressed until the quiet window has passed.",
    "limits": "At most so many calls in any window, over all processes.",
    "watermarks": "How far a poller got. A watermark does not go back, unless an admin rewinds it.",
    "queues": "Work items that are taken under a lease, and return to the queue if the worker dies.",
    "schedules": "When each schedule ran last and is due next.",
    "dead-letters": "Work that failed for good: list it, replay it once, or purge it.",
    "hosts": "What the processes of one host hold: released at once if the host has died.",
    "history": "What happened to a key through this service: who acquired, renewed, refused, released or cleared it.",
    "entries": "Everything that the store has under a name, whatever its kind.",
    "events": "What happened: the last events of a worker, and new ones as a stream.",
    "ops": "The ops of the store, in batches: what a client in another language needs for all of the above.",
    "audit": "Who overrode what, when and why.",
    "service": "Health, metrics, the version, and the documents of the service itself.",
}


def document(
    routes: Iterable[Route], *, guarded: bool = True, about: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """The OpenAPI document of these routes, without pages; `guarded` if callers need tokens. `about` describes the
    tags of applications."""
    shown = [route for route in routes if not route.hidden]
    types = _types(shown)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    known = dict(zip(map(repr, types), schemas, strict=True))
    for each in types:
        if getattr(each, "EITHER", ()):
            components[each.__name__]["oneOf"] = [{"required": [name]} for name in each.EITHER]
    paths: dict[str, dict[str, Any]] = {}
    examples = Examples(components)
    for route in shown:
        operation = paths.setdefault(route.shown_path, {})[route.method.lower()] = _operation(route, known)
        _add_examples(operation, route, examples)
        operation["security"] = [{"bearer": []}] if guarded and isinstance(route.auth, Bearer) else []
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Solely",
            "version": __version__,
            "description": "Work that must happen once, over HTTP. Keys are sent in bodies and queries; times are in "
            f"seconds. {problems.POLICY_PATH} says what a repeat of each request does.",
        },
        "tags": [{"name": name, "description": _about(name, about)} for name in dict.fromkeys(map(_tag, shown))],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _tag(route: Route) -> str:
    return route.noun


def _about(tag: str, about: Mapping[str, str]) -> str:
    return about.get(tag) or ABOUT.get(tag) or f"The routes of {tag}."


def _add_examples(operation: dict[str, Any], route: Route, examples: Examples) -> None:
    """Adds an example to the parameters, the request and each response of an operation that succeeded."""
    tag = route.noun
    for each in operation.get("parameters", ()):
        if each["required"]:
            each["example"] = examples.parameter(each["schema"], each["name"], tag)
    for content in operation.get("requestBody", {}).get("content", {}).values():
        content["example"] = examples.request(content["schema"], tag)
    for status in (route.status, *route.others):
        for media, content in operation["responses"][str(status)].get("content", {}).items():
            if media == route.media:
                schema = content.get("schema")
                content["example"] = TEXTS.get(media, "…") if schema is None else examples.response(schema, tag)


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
        kind = NDJSON if route.lines else kind
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
    names = [part[1:-1] for part in route.shown_path.split("/") if part.startswith("{")]
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


def current(call: Call[Any, Any]) -> dict[str, Any]:
    """The document of the routes that this service has mounted."""
    service = call.service
    guarded = bool(service.tokens)
    if guarded not in service.openapi:  # built once, since anybody may request it
        about = {name: app.about for name, app in service.apps.items()}
        service.openapi[guarded] = document(call.routes, guarded=guarded, about=about)
    return service.openapi[guarded]


async def openapi(call: Call[None, None]) -> dict[str, Any] | Response:
    """This document."""
    encoded = _encoded(call)
    headers = {"etag": encoded.tag, "cache-control": "no-cache", "vary": "accept-encoding"}
    if encoded.tag in (each.strip().removeprefix("W/") for each in call.header("if-none-match").split(",")):
        return Response(status_code=304, headers=headers)
    body = encoded.plain
    if accepts_gzip(call.header("accept-encoding")):
        body, headers["content-encoding"] = encoded.compressed, "gzip"
    return Response(body, headers=headers, media_type="application/json")


def _encoded(call: Call[Any, Any]) -> EncodedDocument:
    """The document, encoded once: anybody may request it, as often as they like."""
    known, guarded = call.service.encoded_openapi, bool(call.service.tokens)
    if guarded not in known:
        plain = to_json(current(call))
        compressed = gzip.compress(plain, mtime=0)  # the same bytes in each worker
        known[guarded] = EncodedDocument(plain, compressed, f'"{hashlib.sha256(plain).hexdigest()[:32]}"')
    return known[guarded]


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
