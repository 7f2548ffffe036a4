"""The shipped conformance suite, on our middleware behind real servers, on every store; and on a service without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from solely.integrations.idempotency import Rules
from solely.testing.http_idempotency import CHECKS, CheckOutcome, Target, run, table
from solely.testing.http_idempotency.__main__ import main
from tests.http.service import HEADERS, MAX_REQUEST, Service, principal, target
from tests.http.serving import SERVERS


@pytest.mark.parametrize("kind", SERVERS)
def test_our_middleware_conforms_on_every_store(kind: str, store_url: str) -> None:
    rules = Rules(scope=principal, max_request=MAX_REQUEST)
    with SERVERS[kind](Service(), rules, store_url) as address:
        results = run(target(address))
    assert [result for result in results if result.outcome is not CheckOutcome.PASSED] == []
    assert len(results) == len(CHECKS) >= 40


@pytest.mark.parametrize("kind", SERVERS)
def test_our_middleware_conforms_in_strict_mode(kind: str) -> None:
    rules = Rules(scope=principal, max_request=MAX_REQUEST, in_flight="conflict")
    with SERVERS[kind](Service(), rules, "memory://") as address:
        results = run(target(address))
    assert [result for result in results if result.outcome is not CheckOutcome.PASSED] == []


def test_a_service_that_does_nothing_fails_and_is_told_why(capsys: pytest.CaptureFixture[str]) -> None:
    """The checks can fail: without the middleware nearly all of them do."""
    lax = Rules(scope=principal, methods=())
    with SERVERS["asgi"](Service(), lax, "memory://") as address:
        results = run(target(address))
        code = main([f"{address}/orders", "--header", "Authorization: Bearer one"])
    passed = {result.check.name for result in results if result.outcome is CheckOutcome.PASSED}
    assert passed == {
        "string_is_accepted",
        "get_needs_no_key",
        "new_key_runs",
        "other_uri_is_not_answered_with_the_first",
        "other_method_is_not_answered_with_the_first",
    }
    printed = capsys.readouterr().out
    assert code == 1
    assert "| 2.6 | a retry gets the same status and the same bytes | NO |" in printed
    assert "no slow_url was given" in printed


def test_the_table_has_a_column_for_every_service() -> None:
    with SERVERS["asgi"](Service(), Rules(scope=principal), "memory://") as address:
        results = run(Target(url=f"{address}/orders", headers=HEADERS))
    lines = table({"one": results, "two": results}).splitlines()
    assert lines[0] == "| source | check | one | two |"
    assert "| 2.1 | a quoted string is accepted | yes | yes |" in lines
    assert "- other_uri_is_refused: not run: no other_url was given" in lines


def test_the_suite_needs_the_standard_library_only() -> None:
    import solely.testing.http_idempotency as suite

    folder = Path(suite.__file__).parent
    text = "\n".join(page.read_text() for page in folder.glob("*.py"))
    assert not {"pytest", "httpx", "requests"} & {
        line.split()[1].partition(".")[0] for line in text.splitlines() if line.startswith(("import ", "from "))
    }
