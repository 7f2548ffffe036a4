"""The API reference: each operation has examples that its schema allows, and a page that shows them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from solely.service.dashboard.reference import sent_as
from solely.service.openapi_examples import Examples
from tests.service.serving import LINES, TOKENS, Running, bearer, running

STREAMS = ("/v1/events", "/v1/ops/hints")  # which do not end


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with running() as it:
        yield it


@pytest.fixture(scope="module")
def document(service: Running) -> dict[str, Any]:
    # \Z is Python's: a validator of JSON schemas knows $ for the same.
    found: dict[str, Any] = json.loads(service.get("/openapi.json").text.replace("\\\\Z", "$"))
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def is_valid(content: dict[str, Any], document: dict[str, Any]) -> bool:
    return jsonschema_rs.is_valid({**content["schema"], "components": document["components"]}, content["example"])


def test_every_operation_has_examples_that_its_schema_allows(document: dict[str, Any]) -> None:
    seen = 0
    for method, path, operation in operations(document):
        where = f"{method} {path}"
        for parameter in operation.get("parameters", ()):
            assert not parameter["required"] or "example" in parameter, where
        contents = [*operation.get("requestBody", {}).get("content", {}).values()]
        for status, response in operation["responses"].items():
            if status.startswith("2"):
                contents += response.get("content", {}).values()
        for content in contents:
            assert "example" in content, where
            assert "schema" not in content or is_valid(content, document), (where, content["example"])
        seen += 1
    assert seen > 100


@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["string", "null"]},
        {"const": 7},
        {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False},
        {"type": "number", "minimum": 5, "maximum": 6},
        {"type": "string", "minLength": 20},
        {"type": "object", "properties": {"self": {"type": "object"}}},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
        {},
    ],
)
def test_examples_of_schemas_that_an_application_may_bring(schema: dict[str, Any]) -> None:
    assert jsonschema_rs.is_valid(schema, Examples({}).response(schema, "locks"))


def test_every_tag_has_a_description(document: dict[str, Any]) -> None:
    described = {each["name"]: each["description"] for each in document["tags"]}
    assert {tag for _, _, each in operations(document) for tag in each["tags"]} == set(described)
    for name, description in described.items():
        assert len(description) > 20, name
        assert not description.startswith("The routes of"), (
            f"{name} has no line in ABOUT and its application no `about`"
        )


def test_the_service_understands_every_example(service: Running, document: dict[str, Any]) -> None:
    """The requests as the reference shows them; a token that does not exist is refused as such, and a silence of the
    past."""
    refused = {}
    for method, path, operation in operations(document):
        if path in STREAMS or path == "/probe":
            continue
        query = {}
        for each in operation.get("parameters", ()):
            if each["in"] == "path":
                path = path.replace(f"{{{each['name']}}}", each["example"])
            elif "example" in each:
                query[each["name"]] = each["example"]
        contents: dict[str, Any] = operation.get("requestBody", {}).get("content", {})
        media, body = next(((media, sent_as(media, each["example"])) for media, each in contents.items()), ("", ""))
        headers = {"content-type": media} if media else {}
        response = service.http.request(method, path, params=query, content=body, headers=headers)
        assert response.status_code < 500 or response.status_code == 503, (method, path, response.text)
        if response.status_code in (400, 405, 415, 422):
            refused[f"{method} {path}"] = response.text
    secrets = re.compile("token|webhook|signature|must end after now", re.IGNORECASE)
    others = {where: text for where, text in refused.items() if not secrets.search(text)}
    assert not others, "\n".join(f"{where}: {text}" for where, text in others.items())


def test_the_navigation_leads_to_a_page_with_every_operation(service: Running, document: dict[str, Any]) -> None:
    assert '<a href="/reference">API</a>' in service.get("/locks", headers={"accept": "text/html"}).text
    index = service.get("/reference", headers={"accept": "text/html"}).text
    for tag in document["tags"]:
        assert f'href="/reference/{tag["name"]}"' in index
        page = service.get(f"/reference/{tag['name']}", headers={"accept": "text/html"}).text
        for _, _, operation in operations(document):
            if tag["name"] in operation["tags"]:
                assert f'id="{operation["operationId"]}"' in page
                assert operation["operationId"] in index


def test_the_commands_of_the_reference_work() -> None:
    """curl is not run, but read as a shell reads it: its address, headers and body are sent."""
    with running(tokens=LINES) as service:
        reader = bearer(TOKENS["read"])
        page = service.get("/reference/locks?format=json", headers=reader).json()
        (acquire,) = [each for each in page["tags"][0]["operations"] if each["path"] == "/v1/locks/acquire"]
        words = shlex.split(acquire["request"].replace("$SOLELY_TOKEN", TOKENS["write"]).replace("\\\n", ""))
        headers = dict(words[at + 1].split(": ", 1) for at, word in enumerate(words) if word == "-H")
        assert words[:3] == ["curl", "-s", f"{service.address}/v1/locks/acquire"]
        response = service.http.post(words[2], headers=headers, content=words[words.index("--data-binary") + 1])
        assert response.json()["key"] == "deploy:web"


def test_an_unknown_heading_is_not_found(service: Running) -> None:
    response = service.get("/reference/nothing")
    assert response.status_code == 404
    assert "/reference lists all of them" in response.text
