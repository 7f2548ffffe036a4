"""Bad input is a clear error before any store call, from both clients."""

import inspect
import math
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import solely
from solely import AsyncClient, Cache, Client
from tests.client.refusing import AsyncRefusingStore, RefusingStore

CLIENTS: dict[str, Callable[[], Any]] = {
    "blocking": lambda: Client(store=RefusingStore()),
    "asyncio": lambda: AsyncClient(store=AsyncRefusingStore()),
}
BAD_KEYS: dict[str, Any] = {
    "empty": "",
    "513 bytes": "k" * 513,
    "513 bytes of UTF-8": "é" * 256 + "k",
    "NUL": "a\0b",
    "bytes": b"a",
    "int": 7,
    "None": None,
    "tuple": ("a",),
    "lone surrogate": "a\ud800",
}
BAD_TTLS: dict[str, Any] = {
    "0": 0,
    "too short to hold": 0.001,
    "negative": -1,
    "NaN": math.nan,
    "inf": math.inf,
    "10 years": 10 * 366 * 86_400,
    "400 digits": 10**400,
    "minus 400 digits": -(10**400),
    "True": True,
    "text": "30",
    "None": None,
    "negative timedelta": timedelta(seconds=-1),
    "10 years as timedelta": timedelta(days=3_660),
}
BAD_WAITS: dict[str, Any] = {
    "negative": -0.1, "NaN": math.nan, "inf": math.inf, "text": "1", "True": True, "2 days": 2 * 86_400,
}  # fmt: skip
BY_KEY: dict[str, Callable[[Any, Any], Any]] = {
    "lock": lambda once, key: once.lock(key),
    "try_lock": lambda once, key: once.try_lock(key),
    "lock_all": lambda once, key: once.lock_all(["fine", key]),
    "first": lambda once, key: once.first(key),
    "first_many": lambda once, key: once.first_many(["fine", key]),
    "ensure_marks": lambda once, key: once.ensure_marks(["fine", key]),
    "seen": lambda once, key: once.seen(key),
    "read_marks": lambda once, key: once.read_marks(["fine", key]),
    "mark": lambda once, key: once.mark(key),
    "forget": lambda once, key: once.forget(key),
}
BY_TTL: dict[str, Callable[[Any, Any], Any]] = {
    "lock": lambda once, ttl: once.lock("a", ttl=ttl),
    "try_lock": lambda once, ttl: once.try_lock("a", ttl=ttl),
    "lock_all": lambda once, ttl: once.lock_all(["a", "b"], ttl=ttl),
    "first": lambda once, ttl: once.first("a", ttl=ttl),
    "first_many": lambda once, ttl: once.first_many(["a", "b"], ttl=ttl),
    "ensure_marks": lambda once, ttl: once.ensure_marks(["a", "b"], ttl=ttl),
    "mark": lambda once, ttl: once.mark("a", ttl=ttl),
}


@pytest.fixture(params=CLIENTS)
def once(request: pytest.FixtureRequest) -> Any:
    """A client whose store may not be called."""
    return CLIENTS[request.param]()


async def refused(call: Callable[[], Any]) -> solely.InvalidInput:
    """The InvalidInput that the call, or awaiting what it returned, raised."""
    with pytest.raises(solely.InvalidInput) as refusal:
        pending = call()
        if inspect.isawaitable(pending):
            await pending
    assert isinstance(refusal.value, ValueError)
    return refusal.value


@pytest.mark.parametrize("method", BY_KEY)
@pytest.mark.parametrize("key", BAD_KEYS)
async def test_keys_that_cannot_be(once: Any, method: str, key: str) -> None:
    assert "key" in str(await refused(lambda: BY_KEY[method](once, BAD_KEYS[key])))


@pytest.mark.parametrize("method", BY_TTL)
@pytest.mark.parametrize("ttl", BAD_TTLS)
async def test_ttls_that_cannot_be(once: Any, method: str, ttl: str) -> None:
    assert "ttl" in str(await refused(lambda: BY_TTL[method](once, BAD_TTLS[ttl])))


@pytest.mark.parametrize("wait", BAD_WAITS)
async def test_waits_that_cannot_be(once: Any, wait: str) -> None:
    assert "wait" in str(await refused(lambda: once.lock("a", wait=BAD_WAITS[wait])))
    assert "wait" in str(await refused(lambda: once.lock_all(["a"], wait=BAD_WAITS[wait])))


@pytest.mark.parametrize("seconds", [-1, math.nan, "1", True])
async def test_delays_and_max_holds_that_cannot_be(once: Any, seconds: Any) -> None:
    for method in (once.lock, once.try_lock):
        assert "delay" in str(await refused(lambda m=method: m("a", delay=seconds)))  # type: ignore[misc]
        assert "max_hold" in str(await refused(lambda m=method: m("a", max_hold=seconds)))  # type: ignore[misc]
    assert "max_hold" in str(await refused(lambda: once.lock_all(["a"], max_hold=seconds)))
    assert "max_hold" in str(await refused(lambda: once.claim("a", max_hold=seconds)))
    assert "max_hold" in str(await refused(lambda: once.claim_many(["a"], max_hold=seconds)))


async def test_a_max_hold_of_nothing_cannot_be(once: Any) -> None:
    assert "max_hold" in str(await refused(lambda: once.lock("a", max_hold=0)))


@pytest.mark.parametrize("on_lost", ["explode", None, 7])
async def test_on_lost_that_cannot_be(once: Any, on_lost: Any) -> None:
    assert "on_lost" in str(await refused(lambda: once.lock("a", on_lost=on_lost)))
    assert "on_lost" in str(await refused(lambda: once.try_lock("a", on_lost=on_lost)))


async def test_a_thread_cannot_be_cancelled() -> None:
    once = Client(store=RefusingStore())
    assert "thread cannot be cancelled" in str(await refused(lambda: once.lock("a", on_lost="cancel")))


@pytest.mark.parametrize("purpose", [7, None, b"deploy"])
async def test_purposes_that_cannot_be(once: Any, purpose: Any) -> None:
    assert "purpose" in str(await refused(lambda: once.lock("a", purpose=purpose)))


@pytest.mark.parametrize("keys", ["one text", b"bytes"])
async def test_several_keys_that_are_none(once: Any, keys: Any) -> None:
    assert "keys" in str(await refused(lambda: once.lock_all(keys)))
    assert "keys" in str(await refused(lambda: once.first_many(keys)))
    assert "keys" in str(await refused(lambda: once.claim_many(keys)))


async def test_no_keys_at_all_guard_nothing(once: Any) -> None:
    assert "0 keys" in str(await refused(lambda: once.lock_all([])))


@pytest.mark.parametrize("keys", [[], (), {}])
async def test_no_keys_get_no_answers(once: Any, keys: Any) -> None:
    """An empty poll is no mistake of its caller, and costs no round trip: the store of this test refuses every call."""
    for many in (once.first_many, once.claim_many):
        answers = many(keys)
        assert (await answers if inspect.isawaitable(answers) else answers) == []


@pytest.mark.parametrize("token", ["", "nonsense", "e30=", "WzFd", 7, None])
async def test_tokens_that_are_none(once: Any, token: Any) -> None:
    assert "token" in str(await refused(lambda: once.resume(token)))


@pytest.mark.parametrize("client", [Client, AsyncClient])
@pytest.mark.parametrize("url", ["", "nosuch://here", "localhost:6379", "memory", "://"])
def test_unknown_schemes(client: Any, url: str) -> None:
    with pytest.raises(solely.UnknownScheme, match="must begin with one of memory://, sqlite://, redis://"):
        client(url)


@pytest.mark.parametrize("client", [Client, AsyncClient])
@pytest.mark.parametrize("timeout", [0, -1, math.nan, math.inf, "5", True])
def test_timeouts_that_cannot_be(client: Any, timeout: Any) -> None:
    with pytest.raises(solely.InvalidInput, match="timeout"):
        client("memory://", timeout=timeout)


@pytest.mark.parametrize("options", [{"size": 0}, {"size": -1}, {"ttl": 0}, {"ttl": math.nan}])
def test_caches_that_cannot_be(options: Any) -> None:
    with pytest.raises(solely.InvalidInput):
        Cache(**options)


async def test_what_is_just_within_bounds_is_fine() -> None:
    with Client("memory://") as once:
        for key in ("k" * 512, "é" * 256, "a/b c\n\t\x7f", "日本", "mark/a"):
            assert once.first(key)
            once.lock(key, ttl=0.05).release()
        assert once.first("a year", ttl=366 * 86_400)
        assert once.first("a year as timedelta", ttl=timedelta(days=366))


def test_a_missing_extra_names_the_pip_line() -> None:
    """Runs in a process in which `redis` cannot be imported."""
    script = (
        "import sys\n"
        "sys.modules['redis'] = None\n"
        "import solely\n"
        "for client in (solely.Client, solely.AsyncClient):\n"
        "    for scheme in ('redis', 'rediss', 'redis+sentinel', 'redis+cluster'):\n"
        "        try:\n"
        "            client(f'{scheme}://localhost/x')\n"
        "        except solely.MissingExtra as error:\n"
        "            assert isinstance(error, ImportError)\n"
        "            assert \"pip install 'solely[redis]'\" in str(error), error\n"
        "        else:\n"
        "            raise SystemExit(f'{scheme}: no error')\n"
        "solely.Client('memory://').close()\n"
    )
    path = [p for p in sys.path if p]
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{script}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
