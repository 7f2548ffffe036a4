"""The log of the library: a line says all that it knows, also where the application formats only the message."""

from __future__ import annotations

import ast
import asyncio
import io
import logging
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

import solely
from solely import AsyncClient, QueueWorker
from solely.credentials import Logins
from tests.client_modes import result_of

ROOT = Path(solely.__file__).parent


def _calls() -> Iterator[tuple[str, str, list[str]]]:
    """Each call of a logger with `extra=` of known names: where, its text, and the names of its facts."""
    for path in sorted(ROOT.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            values: dict[str, list[ast.expr]] = {}
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    values.setdefault(node.targets[0].id, []).append(node.value)
            for node in ast.walk(function):
                given = [word.value for word in getattr(node, "keywords", ()) if word.arg == "extra"]
                if given and isinstance(node, ast.Call):
                    assigned = [each for arg in node.args for each in values.get(ast.unparse(arg), [])]
                    text = " ".join(map(ast.unparse, [*node.args, *assigned]))
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", text, _names(given[0], values)


def _names(facts: ast.expr, values: dict[str, list[ast.expr]]) -> list[str]:
    """The literal names of these facts, or of what was assigned to this variable."""
    literals = [facts] if isinstance(facts, ast.Dict) else values.get(ast.unparse(facts), [])
    keys = [key for each in literals if isinstance(each, ast.Dict) for key in each.keys]
    return [str(key.value) for key in keys if isinstance(key, ast.Constant)]


def test_the_message_has_every_fact_that_the_record_has() -> None:
    calls = list(_calls())
    assert len(calls) > 30, "the library logs more than that: this test no longer finds the calls"
    missing = [f"{where}: {name}" for where, text, names in calls for name in names if f"%({name})" not in text]
    assert not missing, "\n".join(missing)


# -- forged lines

FOREIGN = "no route\n2026-01-01 00:00:00 ERROR root: all data was deleted\r\x1b[2J\x1b]0;title\x07"


@pytest.fixture
def plain_log() -> Iterator[io.StringIO]:
    """What an application logs that formats records as the documentation of `logging` shows it."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
    yield written
    logging.getLogger().removeHandler(handler)


def lines_of(log: io.StringIO) -> list[str]:
    """The lines that are no part of a traceback; each begins with a time, and none is forged."""
    lines = [line for line in re.split(r"[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", log.getvalue()) if line]
    assert "\x1b" not in log.getvalue()
    assert "\x07" not in log.getvalue()
    begun = [line for line in lines if not line.startswith("    ")]
    assert all(re.match(r"\d{4}-\d\d-\d\d .* (WARNING|ERROR|INFO) solely", line) for line in begun), begun
    assert not [line for line in lines if line.startswith("2026-01-01 00:00:00")]
    return begun


def raises(*_: object) -> NoReturn:
    raise ConnectionError(FOREIGN)


async def raises_async(*_: object) -> NoReturn:
    raises()


async def test_the_reason_of_a_person_forges_no_line(mode: str, open_client: Any, plain_log: io.StringIO) -> None:
    once = open_client(f"memory://{secrets.token_hex(8)}")
    await result_of(once.try_lock("key", ttl=60))
    assert await result_of(once.clear_lock("key", reason=FOREIGN))
    line, *_ = lines_of(plain_log)
    assert "no route\\n2026-01-01 00:00:00 ERROR root: all data was deleted\\r\\x1b[2J\\x1b]0;title\\x07" in line


async def test_the_error_of_a_hook_forges_no_line(mode: str, open_client: Any, plain_log: io.StringIO) -> None:
    """Its traceback stays readable: each line of it is indented, as no line of a log is."""
    once = open_client(f"memory://{secrets.token_hex(8)}", hooks=[raises])
    await result_of(once.first("key", ttl=60))
    (line,) = lines_of(plain_log)
    assert "hook_failed" in line
    written = plain_log.getvalue().splitlines()
    assert "    Traceback (most recent call last):" in written
    assert "    ConnectionError: no route" in written
    assert r"    2026-01-01 00:00:00 ERROR root: all data was deleted" in written


async def test_the_error_of_a_job_forges_no_line(mode: str, open_client: Any, plain_log: io.StringIO) -> None:
    schedule = open_client(f"memory://{secrets.token_hex(8)}").every("report", 0.1)
    async with asyncio.timeout(60):
        while "tick_failed" not in plain_log.getvalue():
            await asyncio.sleep(
                min(1.0, await result_of(schedule.run_due(raises if mode == "blocking" else raises_async)))
            )
    assert lines_of(plain_log)


async def test_the_error_of_a_handler_forges_no_line(plain_log: io.StringIO) -> None:
    async with AsyncClient(f"memory://{secrets.token_hex(8)}") as once:
        await once.queue("mails").push("a", {})
        await QueueWorker(
            once.queue("mails"), raises_async, max_attempts=1, dead_letters=once.dead_letters("mails")
        ).drain()
    assert lines_of(plain_log)


def test_the_error_of_a_credentials_provider_forges_no_line(plain_log: io.StringIO) -> None:
    class Provider:
        """As redis-entraid's, which reports its errors from a thread of its own."""

        def get_credentials(self) -> tuple[str, str]:
            return "user", "password"

        def on_next(self, listener: Callable[[object], None]) -> None: ...

        def on_error(self, listener: Callable[[Exception], None]) -> None:
            self.fail = listener

    provider = Provider()
    logins = Logins(provider)
    provider.fail(ConnectionError(FOREIGN))
    (line,) = lines_of(plain_log)
    logins.close()
    assert "login_not_renewed" in line


def test_every_logger_of_the_library_is_made_where_its_lines_are_kept_whole() -> None:
    allowed = {"logs.py", "cli/program.py", "testing/simulator/simulation.py"}  # these silence it
    made = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "logging.getLogger"
        and ast.unparse(node.args[0] if node.args else node).startswith("'solely")
    }
    assert made <= allowed
