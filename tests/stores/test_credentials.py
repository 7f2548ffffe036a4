"""Logins that change: new connections use the new password, open ones log in again, and no secret is shown anywhere."""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis.auth.token import SimpleToken
from redis.auth.token_manager import RetryPolicy, TokenManagerConfig
from redis.credentials import CredentialProvider, UsernamePasswordCredentialProvider

import solely
from solely import Login
from solely.cli.exits import Exit
from solely.cli.program import perform
from solely.credential_sources import logins_of
from solely.credentials import Logins
from solely.stores import open_store
from solely.testing.harness import fresh
from tests.client_modes import MODES, result_of
from tests.conftest import PATIENT, isolated
from tests.entra import USER, EntraIdentity, EntraTokens, no_thread_is_left
from tests.mongo_server import Mongod
from tests.postgres_server import Postgres
from tests.servers import Valkey, until
from tests.service.serving import running

__all__ = ["no_thread_is_left"]
RIGHTS = ("~*", "&*", "+@all", "-@admin", "-@dangerous", "+info")


class Guarded(Valkey):
    """A server whose default user may do nothing; `USER` has the password that was set last."""

    def __enter__(self) -> Any:
        super().__enter__()
        self.set_password("first")
        return self

    def set_password(self, password: str) -> None:
        """From now on this one is valid, and no other."""
        self.ask("ACL", "SETUSER", USER, "reset", "on", f">{password}", *RIGHTS)

    def lock_out(self) -> None:
        """The default user, as whom nobody logs in, may only administrate from now on."""
        self.ask("ACL", "SETUSER", "default", "-@scripting", "-@pubsub")

    def connections(self) -> list[dict[str, str]]:
        """Those of `USER`."""
        with self.client() as client:
            return [each for each in client.client_list() if each["user"] == USER]

    def cut(self) -> None:
        """Ends the connections of `USER`."""
        self.ask("CLIENT", "KILL", "USER", USER)


@pytest.fixture(scope="module")
def servers() -> Iterator[Guarded]:
    with Guarded() as server:
        server.lock_out()
        yield server


@pytest.fixture
def server(servers: Guarded) -> Guarded:
    servers.set_password("first")
    return servers


class Provider:
    """Gives the password that was set last; `asked` counts how often."""

    def __init__(self, password: str = "first", life: float | None = None) -> None:
        self.password = password
        self.life = life
        self.asked = 0
        self.error: Exception | None = None

    def __call__(self) -> Login:
        self.asked += 1
        if self.error is not None:
            raise self.error
        expires = None if self.life is None else datetime.now(UTC) + timedelta(seconds=self.life)
        return Login(USER, self.password, expires)


class Streaming:
    """A StreamingCredentialProvider of redis-py, whose next token the test gives."""

    def __init__(self) -> None:
        self.password = "first"

    def get_credentials(self) -> tuple[str, str]:
        return USER, self.password

    def on_next(self, callback: Callable[[Any], None]) -> None:
        self._next = callback

    def on_error(self, callback: Callable[[Exception], None]) -> None:
        self.fail = callback

    def is_streaming(self) -> bool:
        return True

    def push(self, password: str) -> None:
        self.password = password
        now = time.time() * 1000
        self._next(SimpleToken(password, now + 3_600_000, now, {"oid": USER}))


# -- Redis


async def test_a_new_connection_uses_the_new_password(
    open_client: Callable[..., Any], server: Guarded, mode: str
) -> None:
    provider = Provider()
    once = open_client(server.url, credentials=provider, timeout=PATIENT)
    assert await result_of(once.first(f"a-{mode}"))
    server.set_password("second")
    provider.password = "second"
    server.cut()
    assert not await result_of(once.first(f"a-{mode}"))
    assert provider.asked >= 2


async def test_the_providers_of_redis_py_are_accepted(
    open_client: Callable[..., Any], server: Guarded, mode: str
) -> None:
    class Own(CredentialProvider):
        def get_credentials(self) -> tuple[str, str]:
            return USER, "first"

    async def awaited() -> tuple[str, str]:
        return USER, "first"

    given: list[Any] = [
        UsernamePasswordCredentialProvider(USER, "first"), Own(), awaited, lambda: (USER, "first"), Provider(life=60),
    ]  # fmt: skip
    for provider in given:
        once = open_client(server.url, credentials=provider, timeout=PATIENT)
        assert not await result_of(once.seen(f"nobody-{mode}"))
    by_url = server.url.replace("//", f"//{USER}@")
    once = open_client(by_url, credentials=lambda: ("", "first"), timeout=PATIENT)
    assert not await result_of(once.seen(f"nobody-{mode}"))


async def test_connections_that_are_open_log_in_again_when_a_login_is_pushed(
    open_client: Callable[..., Any], server: Guarded, mode: str
) -> None:
    provider = Streaming()
    once = open_client(server.url, credentials=provider, timeout=PATIENT)
    await result_of(once.first(f"b-{mode}"))
    before = {each["id"] for each in server.connections()}
    server.set_password("second")
    refusals = len(server.ask("ACL", "LOG"))
    provider.push("second")
    for _ in range(3):
        assert not await result_of(once.first(f"b-{mode}"))
    after = {each["id"]: each for each in server.connections()}
    assert before & after.keys(), "the connection stays"
    assert len(server.ask("ACL", "LOG")) == refusals, "and nothing was refused"
    authenticated = server.ask("INFO", "commandstats")["cmdstat_auth"]["calls"]
    provider.push("second")
    assert not await result_of(once.first(f"b-{mode}"))
    assert server.ask("INFO", "commandstats")["cmdstat_auth"]["calls"] == authenticated, "the same needs no login"


async def test_an_open_connection_whose_new_login_is_refused_is_replaced(
    open_client: Callable[..., Any], server: Guarded, mode: str
) -> None:
    provider = Streaming()
    once = open_client(server.url, credentials=provider, timeout=PATIENT)
    await result_of(once.first(f"c-{mode}"))
    before = {each["id"] for each in server.connections()}
    provider.push("not valid yet")
    provider.password = "first"
    async with asyncio.timeout(PATIENT):
        while {each["id"] for each in server.connections()} & before:
            assert not await result_of(once.first(f"c-{mode}"))
            await asyncio.sleep(0.01)
    assert not await result_of(once.first(f"c-{mode}"))


async def test_who_waits_is_still_woken_after_the_login_changed(
    open_client: Callable[..., Any], server: Guarded, mode: str
) -> None:
    provider = Streaming()
    once, other = (open_client(server.url, credentials=given, timeout=PATIENT) for given in (provider, Streaming()))
    key = f"d-{mode}"
    lease = await result_of(other.lock(key, ttl=60))

    async def waits() -> Any:
        return await (
            asyncio.to_thread(once.lock, key, wait=PATIENT) if mode == "blocking" else once.lock(key, wait=PATIENT)
        )

    waiting = asyncio.ensure_future(waits())
    subscribed = lambda: any(int(each["sub"]) for each in server.connections())  # noqa: E731
    await asyncio.to_thread(until, subscribed, "a subscription")
    server.set_password("second")
    provider.push("second")
    await asyncio.sleep(0)
    await asyncio.to_thread(until, subscribed, "a subscription with the new login")
    await result_of(lease.release())
    taken = await asyncio.wait_for(waiting, PATIENT)
    await result_of(taken.release())


async def test_a_login_is_fetched_anew_before_it_expires_and_open_connections_use_it(
    open_client: Callable[..., Any], server: Guarded, mode: str
) -> None:
    provider, now = Provider(life=600), time.time()
    clock = [now]
    once = open_client(server.url, credentials=Logins(provider, now=lambda: clock[0]), timeout=PATIENT)
    for _ in range(3):
        await result_of(once.first(f"e-{mode}"))
    assert provider.asked == 1, "a login that is valid is not asked for again"
    server.set_password("second")
    provider.password, provider.life = "second", 1200
    logged_in = server.ask("INFO", "commandstats")["cmdstat_auth"]["calls"]
    clock[0] = now + 430  # beyond 0.7 of its life
    async with asyncio.timeout(PATIENT):
        while server.ask("INFO", "commandstats")["cmdstat_auth"]["calls"] == logged_in:
            assert not await result_of(once.first(f"e-{mode}"))
            await asyncio.sleep(0.01)
    assert not await result_of(once.first(f"e-{mode}"))
    assert provider.asked == 2
    server.cut()
    assert not await result_of(once.first(f"e-{mode}"))


async def test_a_password_that_changed_early_is_fetched_anew_when_the_old_one_is_refused(
    open_client: Callable[..., Any], server: Guarded, mode: str
) -> None:
    provider = Provider(life=3600)
    once = open_client(server.url, credentials=provider, timeout=PATIENT)
    await result_of(once.first(f"f-{mode}"))
    server.set_password("second")
    provider.password = "second"
    server.cut()
    assert not await result_of(once.first(f"f-{mode}"))
    assert provider.asked == 2


@pytest.mark.parametrize("several", ["cluster", "sentinel"])
async def test_every_node_is_given_the_login(
    request: pytest.FixtureRequest, open_client: Callable[..., Any], several: str
) -> None:
    servers = request.getfixturevalue(several)
    nodes = servers.nodes if several == "cluster" else [servers.primary]

    def set_password(password: str) -> None:
        for node in nodes:
            node.ask("ACL", "SETUSER", USER, "reset", "on", f">{password}", *RIGHTS)

    set_password("first")
    provider = Streaming()
    once = open_client(isolated(servers.url), credentials=provider, timeout=PATIENT)
    keys = [f"k{number}" for number in range(50)]
    assert all(await result_of(once.first_many(keys)))
    set_password("second")
    provider.push("second")
    assert not any(await result_of(once.first_many(keys)))
    for node in nodes:
        with node.client() as client:
            assert USER in {each["user"] for each in client.client_list()}


async def test_redis_entraid_renews_its_tokens_and_open_connections_use_them(
    open_client: Callable[..., Any], server: Guarded, mode: str
) -> None:
    from redis_entraid.cred_provider import EntraIdCredentialsProvider

    idp = EntraTokens(server)
    renewing = TokenManagerConfig(0.1, 0, 1_000, RetryPolicy(3, 10))
    once = open_client(server.url, credentials=EntraIdCredentialsProvider(idp, renewing), timeout=PATIENT)
    await result_of(once.first(f"g-{mode}"))
    before = {each["id"] for each in server.connections()}
    logins = server.ask("INFO", "commandstats")["cmdstat_auth"]["calls"]
    assert await asyncio.to_thread(idp.renewed.wait, PATIENT)
    async with asyncio.timeout(PATIENT):
        while server.ask("INFO", "commandstats")["cmdstat_auth"]["calls"] == logins:
            assert not await result_of(once.first(f"g-{mode}"))
            await asyncio.sleep(0.01)
    assert before & {each["id"] for each in server.connections()}, "on the connection that it had"


def renewing(tokens: EntraTokens) -> Any:
    """The provider of redis-entraid, which asks for the next token after a tenth of the life of one."""
    from redis_entraid.cred_provider import EntraIdCredentialsProvider

    return EntraIdCredentialsProvider(tokens, TokenManagerConfig(0.1, 0, 1_000, RetryPolicy(3, 10)))


async def renewed_again(tokens: EntraTokens) -> None:
    """Returns once a further token was issued."""
    issued = tokens.issued
    async with asyncio.timeout(PATIENT):
        while tokens.issued == issued:
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("no_thread_is_left")
async def test_the_renewal_of_redis_entraid_ends_with_the_last_client_that_uses_it(server: Guarded, mode: str) -> None:
    """Its thread and event loop went on for ever."""
    tokens = EntraTokens(server)
    provider = renewing(tokens)
    for _ in range(2):  # and begins anew with the next one
        one, other = (MODES[mode](server.url, credentials=provider, timeout=PATIENT) for _ in range(2))
        assert await result_of(one.first(fresh("mark")))
        assert await result_of(other.first(fresh("mark")))
        await result_of(one.close())
        await renewed_again(tokens)
        assert await result_of(other.first(fresh("mark")))
        await result_of(other.close())
        assert not provider.is_streaming()


@pytest.mark.usefixtures("no_thread_is_left")
def test_the_renewal_of_redis_entraid_ends_with_the_service(server: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = EntraTokens(server)
    monkeypatch.setattr(sys.modules[__name__], "provided", renewing(tokens))
    with running(url=server.url, credentials=f"{__name__}:provided") as it:
        assert it.post("/v1/locks/acquire", {"key": fresh("lock")}).status_code == 200
    assert tokens.issued


@pytest.mark.usefixtures("no_thread_is_left")
async def test_a_renewal_that_another_user_of_redis_entraid_began_goes_on(server: Guarded, mode: str) -> None:
    """As one that redis-py itself started."""
    tokens = EntraTokens(server)
    provider = renewing(tokens)
    await provider.get_credentials_async()
    once = MODES[mode](server.url, credentials=provider, timeout=PATIENT)
    assert await result_of(once.first(fresh("mark")))
    await result_of(once.close())
    assert provider.is_streaming()
    await renewed_again(tokens)


@pytest.mark.usefixtures("no_thread_is_left")
async def test_a_renewal_that_takes_long_does_not_hold_up_the_close_for_ever(server: Guarded, mode: str) -> None:
    tokens, asked, go_on = EntraTokens(server), threading.Event(), threading.Event()
    once = MODES[mode](server.url, credentials=renewing(tokens), timeout=PATIENT)
    assert await result_of(once.first(fresh("mark")))

    def stalls(force_refresh: bool = False) -> Any:
        asked.set()
        assert go_on.wait(60)
        raise ConnectionError("too late")

    tokens.request_token = stalls  # type: ignore[method-assign]
    assert await asyncio.to_thread(asked.wait, PATIENT)
    async with asyncio.timeout(PATIENT):
        await result_of(once.close())
    go_on.set()
    (stalled,) = [each for each in threading.enumerate() if each.name == "solely-tokens"]
    await asyncio.to_thread(stalled.join, PATIENT)


# -- Entra ID by name


@pytest.fixture
def identity(server: Guarded, monkeypatch: pytest.MonkeyPatch) -> EntraIdentity:
    stands_in = EntraIdentity(server)
    monkeypatch.setattr("azure.identity.DefaultAzureCredential", stands_in)
    return stands_in


@pytest.mark.usefixtures("no_thread_is_left")
async def test_entra_logs_in_renews_its_tokens_and_is_closed_with_the_client(
    server: Guarded, identity: EntraIdentity, mode: str
) -> None:
    identity.life = 5.0
    once = MODES[mode](server.url, credentials="entra", timeout=PATIENT)
    assert await result_of(once.first(fresh("mark")))
    before = {each["id"] for each in server.connections()}
    logins = server.ask("INFO", "commandstats")["cmdstat_auth"]["calls"]
    async with asyncio.timeout(PATIENT):
        while server.ask("INFO", "commandstats")["cmdstat_auth"]["calls"] == logins:
            await result_of(once.first(fresh("mark")))
            await asyncio.sleep(0.01)
    assert before & {each["id"] for each in server.connections()}, "on the connection that it had"
    assert set(identity.asked) == {"https://redis.azure.com/.default"}
    assert (identity.made, identity.closed) == ([{}], 0)
    for _ in range(2):
        await result_of(once.close())
    assert identity.closed == 1


@pytest.mark.usefixtures("no_thread_is_left")
async def test_entra_takes_the_client_id_of_a_managed_identity(
    server: Guarded, identity: EntraIdentity, mode: str
) -> None:
    once = MODES[mode](server.url, credentials="entra: 1234-abcd", timeout=PATIENT)
    assert await result_of(once.first(fresh("mark")))
    assert identity.made == [{"managed_identity_client_id": "1234-abcd"}]
    await result_of(once.close())


async def test_an_identity_is_closed_when_the_client_cannot_be_opened(
    server: Guarded, identity: EntraIdentity, mode: str
) -> None:
    with pytest.raises(solely.InvalidInput):
        MODES[mode](f"{server.url}?no_such_option=1", credentials="entra")
    assert len(identity.made) == identity.closed == 1
    with pytest.raises(solely.InvalidInput):
        MODES[mode](server.url, credentials="entra", on_outage="never")
    assert len(identity.made) == identity.closed


@pytest.mark.usefixtures("no_thread_is_left")
def test_the_identity_of_the_service_is_closed_when_it_stops(server: Guarded, identity: EntraIdentity) -> None:
    with running(url=server.url, credentials="entra") as it:
        assert it.post("/v1/locks/acquire", {"key": fresh("lock")}).status_code == 200
        assert identity.closed == 0
    assert len(identity.made) == identity.closed


async def test_logins_that_are_given_are_closed_by_who_made_them(server: Guarded, mode: str) -> None:
    closed: list[bool] = []
    logins = Logins(Provider(), close=lambda: closed.append(True))
    for _ in range(2):
        once = MODES[mode](server.url, credentials=logins, timeout=PATIENT)
        assert await result_of(once.first(fresh("mark")))
        await result_of(once.close())
    assert not closed
    logins.close()
    logins.close()
    assert closed == [True]


async def test_a_login_that_the_server_refuses_is_denied_and_no_secret_is_shown(
    open_client: Callable[..., Any], server: Guarded, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        provider = Provider("wr0ng-secret", life=60)
        once = open_client(server.url, credentials=provider, timeout=PATIENT)
        with pytest.raises(solely.StoreDenied, match="refuses the login") as denied:
            await result_of(once.first("h"))
        shown = [str(denied.value), repr(denied.value), repr(once._store), repr(once._store._settings), caplog.text]
        shown += [repr(once._store._logins), repr(once._store._logins.current)]
    assert not [text for text in shown if "wr0ng-secret" in text]


async def test_a_provider_that_fails_is_an_outage_and_its_error_shows_no_secret(
    open_client: Callable[..., Any], server: Guarded, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider = Provider("first", life=600)
    clock = [time.time()]
    logins = Logins(provider, now=lambda: clock[0])
    once = open_client(server.url, credentials=logins, timeout=2)
    await result_of(once.first(f"i-{mode}"))
    provider.error = RuntimeError("no token for password first")
    clock[0] += 500  # the next login is due, and this one still valid
    server.cut()
    assert not await result_of(once.first(f"i-{mode}"))
    assert "login_not_renewed: the credentials provider failed: RuntimeError: no token for password …" in caplog.text
    clock[0] += 200  # now it has expired
    server.cut()
    with pytest.raises(solely.StoreUnavailable, match="the credentials provider failed: RuntimeError") as away:
        await result_of(once.first(f"i-{mode}"))
    assert "password first" not in str(away.value) + caplog.text


# -- PostgreSQL


async def test_postgres_connects_with_the_login_of_the_moment(
    postgres: Postgres, mode: str, open_client: Callable[..., Any]
) -> None:
    user = f"rotating_{mode}"

    def set_password(password: str) -> None:
        with psycopg.connect(postgres.url, autocommit=True) as admin:
            admin.execute(f"ALTER ROLE {user} PASSWORD '{password}'")

    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute(f"DROP ROLE IF EXISTS {user}")
        admin.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'first'")
        admin.execute(f"GRANT CREATE ON DATABASE {admin.info.dbname} TO {user}")
    provider = Provider(life=3600)
    where = postgres.url.rpartition("@")[2]
    url = f"postgresql://{user}@{where}?namespace={user}"
    once = open_client(url, credentials=lambda: Login("", provider().password), timeout=PATIENT)
    assert await result_of(once.first("a"))
    set_password("second")
    provider.password = "second"
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (user,))
    assert not await result_of(once.first("a"))
    cached = open_client(url, credentials=lambda: Login(user, provider.password, in_an_hour()), timeout=PATIENT)
    assert not await result_of(cached.first("a"))
    set_password("third")
    provider.password = "third"
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (user,))
    assert not await result_of(cached.first("a")), "the cached one was refused, and the next was fetched"
    denied = open_client(url, credentials=lambda: ("", "wr0ng-secret"), timeout=PATIENT)
    with pytest.raises(solely.StoreDenied, match="password is wrong") as refusal:
        await result_of(denied.first("a"))
    assert "wr0ng-secret" not in str(refusal.value) + repr(denied._store) + repr(denied._store._settings)


def in_an_hour() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)


# -- MongoDB


@pytest.fixture(scope="module")
def mongod() -> Iterator[Mongod]:
    with Mongod(auth=True) as server:
        with server.mongo() as client:  # the server lets the first user be made without a login
            client.admin.command("createUser", "root", pwd="root", roles=["root"])
        yield server


async def test_mongodb_connects_with_the_login_of_the_moment(
    mongod: Mongod, mode: str, open_client: Callable[..., Any]
) -> None:
    admin = mongod.mongo(username="root", password="root")
    name = f"app_{mode}"
    admin.admin.command("createUser", name, pwd="first", roles=["readWriteAnyDatabase"])
    passwords = ["first"]
    url = f"{mongod.url_of('solely')}?authSource=admin&namespace={name}"
    once = open_client(url, credentials=lambda: Login(name, passwords[-1], in_an_hour()), timeout=PATIENT)
    assert await result_of(once.first("a"))
    admin.admin.command("updateUser", name, pwd="second")
    passwords.append("second")
    drop_connections(once, mode)
    assert not await result_of(once.first("a"))
    denied = open_client(url, credentials=lambda: (name, "wr0ng-secret"), timeout=2)
    with pytest.raises(solely.StoreDenied, match="refuses the login") as refusal:
        await result_of(denied.first("a"))
    assert "wr0ng-secret" not in str(refusal.value) + repr(denied._store) + repr(denied._store._settings)
    admin.close()


def drop_connections(once: Any, mode: str) -> None:
    """Makes the pool of this client connect anew, as after the loss of its connections."""
    client = once._store._opened.client
    for server in client._topology._servers.values():
        server.pool.gen.inc(None)


# -- what cannot be


@pytest.mark.parametrize("url", ["memory://", "sqlite:///x.db", "http://localhost:8765"])
def test_stores_without_a_login_refuse_credentials(url: str, mode: str) -> None:
    with pytest.raises(solely.InvalidInput, match="does not take credentials"):
        MODES[mode](url, credentials=lambda: ("a", "b"))


@pytest.mark.parametrize(
    "url",
    [
        "redis://a:b@host", "redis://:b@host", "redis://host?password=b", "postgresql://a:b@host/db",
        "postgresql://host/db?password=b", "mongodb://a:b@host/db",
    ],
)  # fmt: skip
def test_two_passwords_are_refused(url: str) -> None:
    with pytest.raises(solely.InvalidInput, match="credentials are given, too"):
        open_store(url, credentials=lambda: ("a", "b"))


@pytest.mark.parametrize(
    ("credentials", "text"),
    [
        (7, "must be a function"),
        ("nonsense", "credentials must be `entra`"),
        ("no.such.module:name", "cannot be imported"),
        ("solely:no_such_name", "cannot be imported"),
        ("command:  ", "give a program"),
    ],
)
def test_credentials_that_cannot_be(credentials: Any, text: str) -> None:
    with pytest.raises(solely.InvalidInput, match=text):
        open_store("redis://host", credentials=credentials)


NO_LOGIN: list[Any] = [
    None, "s3cret", ("a", "s3cret", "c"), ("a", 7), Login("a", "s3cret", 7), Login("a", "s3cret", datetime(2026, 1, 1)),  # type: ignore[arg-type] # noqa: DTZ001
]  # fmt: skip


@pytest.mark.parametrize("given", NO_LOGIN)
def test_an_answer_that_is_no_login_is_refused_without_showing_it(given: Any) -> None:
    with pytest.raises(solely.StoreUnavailable, match="the credentials provider failed: InvalidInput") as refused:
        Logins(lambda: given).get()
    assert "s3cret" not in str(refused.value)


# -- named providers


def test_a_command_prints_the_password_or_json(tmp_path: Path) -> None:
    program = tmp_path / "login.py"
    program.write_text("import sys; print(sys.argv[1])")
    command = f"command: {sys.executable} {program}"
    assert logins_of(f"{command} s3cret", "redis").get() == Login("", "s3cret")
    until_then = '"expires": "2099-01-01T00:00:00+00:00"'
    full = logins_of(f'{command} \'{{"username": "app", "password": "pw", {until_then}}}\'', "redis").get()
    assert (full, full.expires) == (Login("app", "pw"), datetime(2099, 1, 1, tzinfo=UTC))
    with pytest.raises(solely.StoreUnavailable, match="printed JSON without") as wrong:
        logins_of(f'{command} \'{{"secret": "pw"}}\'', "redis").get()
    assert '"pw"' not in str(wrong.value)
    program.write_text("import sys; sys.exit('the secret is pw')")
    with pytest.raises(solely.StoreUnavailable, match="ended with code 1") as failed:
        logins_of(command, "redis").get()
    assert "the secret is" not in str(failed.value)
    with pytest.raises(solely.StoreUnavailable, match="did not run: FileNotFoundError"):
        logins_of("command: /no/such/program", "redis").get()


def provided() -> Login:
    return Login(USER, "first")


async def test_a_provider_is_named_by_its_module_or_the_environment(
    server: Guarded, mode: str, open_client: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    named = f"{__name__}:provided"
    assert not await result_of(open_client(server.url, credentials=named, timeout=PATIENT).seen("a"))
    monkeypatch.setenv("SOLELY_URL", server.url)
    monkeypatch.setenv("SOLELY_CREDENTIALS", named)
    assert not await result_of(open_client(timeout=PATIENT).seen("a"))


def test_the_service_and_the_command_line_take_a_named_provider(
    server: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = f"{__name__}:provided"
    with running(url=server.url, credentials=named) as it:
        assert it.post("/v1/locks/acquire", {"key": fresh("lock")}).status_code == 200
        assert {each["user"] for each in server.connections()} == {USER}
    with solely.Client(server.url, credentials=named) as once:
        assert once.first(fresh("mark"), ttl=60)  # a list of nothing runs no script, which the default user may not
    command = ["marks", "list", "--url", server.url]
    assert perform(command) == Exit.DENIED
    assert perform([*command, "--credentials", named]) == 0
    monkeypatch.setenv("SOLELY_CREDENTIALS", named)
    assert perform(command) == 0


def test_entra_gives_tokens_for_postgres_and_none_for_mongo(server: Guarded, identity: EntraIdentity) -> None:
    identity.life = 600.0
    logins = logins_of("entra", "postgres")
    login = logins.get()
    assert (login.username, login.password[:3]) == ("", "eyJ")
    assert login.expires is not None
    assert 500 < login.expires.timestamp() - time.time() <= 600
    assert identity.asked == ["https://ossrdbms-aad.database.windows.net/.default"]
    logins.close()
    assert identity.closed == 1
    with pytest.raises(solely.InvalidInput, match="MONGODB-OIDC"):
        logins_of("entra", "mongo")
