"""The pytest plugin, as its users have it: a test run of its own, in which it is enabled by one line."""

import pytest

pytest_plugins = ["pytester"]

TEST = """
import solely as library

def test_a_mark_ends_with_its_ttl(solely, solely_clock):
    assert solely.first("job", ttl=60)
    assert not solely.first("job", ttl=60)
    solely_clock.advance(61)
    assert solely.first("job", ttl=60)

def test_each_test_has_a_store_of_its_own(solely):
    assert solely.first("job", ttl=60)

def test_a_client_without_a_url_shares_it(solely, solely_clock):
    with library.Client() as opened_by_the_code_under_test:
        assert opened_by_the_code_under_test.first("job", ttl=60)
    assert solely.seen("job")
    solely_clock.advance(61)
    assert not solely.seen("job")

def test_what_asks_for_nothing_gets_nothing():
    import os
    assert "SOLELY_URL" not in os.environ
"""


@pytest.fixture(autouse=True)
def _no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOLELY_URL", raising=False)


def test_the_fixtures_do_what_they_say(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["solely.integrations.pytest_plugin"]')
    pytester.makepyfile(TEST)
    pytester.runpytest_inprocess("-p", "no:valkey", "-p", "no:asyncio").assert_outcomes(passed=4)


def test_nothing_is_there_unless_it_is_enabled(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST)
    outcome = pytester.runpytest_inprocess("-p", "no:valkey", "-p", "no:asyncio")
    outcome.assert_outcomes(passed=1, errors=3)
    outcome.stdout.fnmatch_lines(["*fixture 'solely' not found*"])
