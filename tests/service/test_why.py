"""Why: one declaration explains a subject in the same sentences on a page, in the API and on the command line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from solely.kit.commands import why_command
from solely.service import health
from solely.service.why import Explained, Explainer
from tests.service.serving import LINES, TOKENS, Running, bearer, running


class Paused(Explained):
    """What is known about a target."""

    target: str
    paused: bool


WHY = Explainer("probes", "target", Paused, title="Why is it not probed?", hint="the name of the target")


async def explain(target: str) -> Paused:
    verdict = ["Paused by <Ann> until it is resumed."] if target == "db" else ["It is probed every minute."]
    return Paused(verdict=verdict, target=target, paused=target == "db")


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with running([*WHY.routes(explain), *health.ROUTES], tokens=LINES) as it:
        yield it


READER = bearer(TOKENS["read"])


def test_the_api_has_the_facts_and_the_sentences(service: Running) -> None:
    answer = service.get("/api/probes/why", params={"target": "db"}, headers=READER)
    assert answer.json() == {"verdict": ["Paused by <Ann> until it is resumed."], "target": "db", "paused": True}
    assert service.get("/api/probes/why", headers=READER).status_code == 400
    assert service.get("/api/probes/why", params={"target": "db"}).status_code == 401


def test_the_page_has_the_same_sentences_as_text(service: Running) -> None:
    page = service.get("/probes/why", params={"target": "db"}, headers={**READER, "accept": "text/html"})
    assert page.status_code == 200
    assert "<li>Paused by &lt;Ann&gt; until it is resumed.</li>" in page.text
    empty = service.get("/probes/why", headers={**READER, "accept": "text/html"})
    assert "Enter the name of the target." in empty.text


def test_so_does_the_command(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOLELY_TOKEN", TOKENS["read"])
    at = ["--at", service.address]
    command = why_command("probes", "target", "Explains why TARGET is not probed.")
    printed = CliRunner().invoke(command, ["db", *at])
    assert (printed.exit_code, printed.output) == (0, "Paused by <Ann> until it is resumed.\n")
    assert '"paused": true' in CliRunner().invoke(command, ["db", "-o", "json", *at]).output
