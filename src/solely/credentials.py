"""Logins that change: a provider gives the user name and the password whenever a store connects.

If a login says when it expires, the next one is fetched in time, and connections that are open log in again. Secrets
are in no repr, no log line and no error.
"""

from __future__ import annotations

import inspect
import os
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from .errors import ClientClosed, InvalidInput, SolelyError, StoreUnavailable
from .logs import get_logger

if TYPE_CHECKING:
    import asyncio

log = get_logger()

RENEW_AT = 0.7  # of the life that a login has left: leaves time for several tries; redis-entraid does the same
LEAST_REST = 1.0  # seconds between two requests to the provider because of an expiry: it may be rate limited
CLOSING = 2.0  # seconds that close() waits for a request to the provider, which no thread can break off


OURS = "SOLELY_"  # how the variables begin that name our store, its logins, our tokens and our settings


def environment_of_others() -> dict[str, str]:
    """The environment of this process for programs that it starts: without our variables, which may hold secrets."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OURS)}


@dataclass(frozen=True, slots=True)
class Login:
    """A user name, "" for the one in the URL, its password, and when the password expires, if that is known."""

    username: str
    password: str = field(repr=False)
    expires: datetime | None = field(default=None, compare=False)


class CredentialProvider(Protocol):
    """As redis-py has it: (username, password), or (password,)."""

    def get_credentials(self) -> tuple[str] | tuple[str, str]: ...


class LoginUser(Protocol):
    """A store with open connections."""

    def login_changed(self) -> None:
        """Called from any thread when there is a new login."""


class Logins:
    """The logins of a provider: a function that returns a Login or (username, password), or an object with
    `get_credentials()` as redis-py has them. It is called on a thread, and may be a coroutine function.

    Whoever makes them closes them: then no thread of theirs is left, and `close` of what the provider holds was called.
    """

    def __init__(
        self, provider: Any, *, now: Callable[[], float] = time.time, close: Callable[[], object] | None = None
    ) -> None:
        self._ask: Any = getattr(provider, "get_credentials", provider)
        self._close = close
        if not callable(self._ask):
            raise InvalidInput(
                "credentials must be a function, an object with get_credentials(), or a text such as 'entra', "
                f"not {type(provider).__name__}"
            )
        self.current: Login | None = None  # the one that was given last
        self._now = now
        self._renew_at = 0.0  # when to ask again; 0: at every connect, since nobody knows how long it is valid
        self._users: weakref.WeakSet[LoginUser] = weakref.WeakSet()
        self._reset()
        self._stream: TokenStream | None = None
        if callable(getattr(provider, "on_next", None)):  # a StreamingCredentialProvider of redis-py
            self._stream = TokenStream.of(provider, self)
            self._ask = self._stream.ask

    def _reset(self) -> None:
        self._asking = threading.Lock()
        self._background: threading.Thread | None = None

    def forked(self) -> None:
        """In the child after a fork: the parent's threads are not here."""
        self._reset()
        if self._stream is not None:
            self._stream.forked()

    def close(self) -> None:
        """Ends what fetches logins, and closes what it holds; safe to call twice."""
        if self._stream is not None:
            self._stream.left_by(self)
        if self._background is not None:
            self._background.join(CLOSING)
        close, self._close = self._close, None
        if close is not None:
            close()

    def used_by(self, user: LoginUser) -> None:
        """From now on, `user` learns of each new login."""
        self._users.add(user)

    def get(self) -> Login:
        """A login for a new connection; asks the provider unless the last one is known to be valid for a while.

        Raises StoreUnavailable if the provider fails and no valid login is left.
        """
        with self._asking:
            known = self.current
            return known if known is not None and self._now() < self._renew_at else self._asked()

    def tries(self) -> Iterator[Login]:
        """A login; and, if the server refuses that, a new one, unless the provider still gives the same."""
        login = self.get()
        yield login
        self._renew_at = 0.0
        again = self.get()
        if again != login:
            yield again

    def renew_if_due(self) -> None:
        """Starts to fetch the next login, on a thread, if it is time to."""
        due = 0.0 < self._renew_at <= self._now()
        if due and (self._background is None or not self._background.is_alive()):
            self._background = threading.Thread(target=self._renew, name="solely-login", daemon=True)
            self._background.start()

    def _renew(self) -> None:
        try:
            self.get()
        except SolelyError as error:
            self.failed(error)

    def _asked(self) -> Login:
        import asyncio  # here, as few providers need it, and it takes long to import

        try:
            given = self._ask()
            login = _login(asyncio.run(given) if inspect.iscoroutine(given) else given)
        except Exception as error:  # noqa: BLE001 - whatever the provider raises, there is no login
            known = self.current
            if known is None or known.expires is None or known.expires.timestamp() <= self._now():
                raise StoreUnavailable(f"the credentials provider failed: {self._without_secrets(error)}") from None
            self.failed(error)
            self._renew_at = self._now() + LEAST_REST
            return known
        return self._note(login)

    def _note(self, login: Login) -> Login:
        before, self.current = self.current, login
        left = 0.0 if login.expires is None else login.expires.timestamp() - self._now()
        self._renew_at = self._now() + max(LEAST_REST, left * RENEW_AT) if login.expires is not None else 0.0
        if before is not None and before != login:
            for user in list(self._users):
                user.login_changed()
        return login

    def pushed(self, token: Any) -> None:
        """A streaming provider has a new login."""
        expires = datetime.fromtimestamp(token.get_expires_at_ms() / 1000, UTC)
        self._note(Login(str(token.try_get("oid") or ""), str(token.get_value()), expires))

    def failed(self, error: Exception) -> None:
        """The provider has no new login; the last one is used until it expires."""
        facts = {"error": self._without_secrets(error)}
        log.warning("login_not_renewed: the credentials provider failed: %(error)s", facts, extra=facts)

    def _without_secrets(self, error: Exception) -> str:
        text = f"{type(error).__name__}: {error}"
        return text.replace(self.current.password, "…") if self.current is not None and self.current.password else text

    def __repr__(self) -> str:
        return f"<Logins {self.current}>"


class TokenStream:
    """The tokens that a streaming provider of redis-py pushes, for all logins that use it.

    Left to itself, redis-entraid's renews them on a thread with an event loop that nothing ends. So its coroutines run
    on a loop of ours, which ends with the last of the logins.
    """

    _streams: ClassVar[dict[int, TokenStream]] = {}  # by id of the provider, which the stream keeps alive
    _mutex = threading.Lock()

    @classmethod
    def of(cls, provider: Any, logins: Logins) -> TokenStream:
        """The one stream of this provider, which has room for one listener only."""
        with cls._mutex:
            stream, known = cls._streams.get(id(provider)), True
            if stream is None:
                stream, known = cls(provider), False
                cls._streams[id(provider)] = stream
            stream._users.add(logins)
        if not known:  # now somebody hears what it may have to say at once
            provider.on_next(stream._pushed)
            provider.on_error(stream._failed)
        return stream

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._users: weakref.WeakSet[Logins] = weakref.WeakSet()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._end: asyncio.Event

    def ask(self) -> Any:
        """What the provider answers; its renewal begins on our loop, unless it has begun elsewhere."""
        import asyncio

        if not self._runs_here():
            return self._provider.get_credentials()
        with TokenStream._mutex:
            if not self._users:
                raise ClientClosed("the client was closed; open a new one")
            loop = self._loop or self._start()
        return asyncio.run_coroutine_threadsafe(self._provider.get_credentials_async(), loop).result()

    def _runs_here(self) -> bool:
        """False if its user has started it, or it is asked by a plain call only, as redis-py's base class has it."""
        asks = getattr(type(self._provider), "get_credentials_async", None)
        own = asks is not None and asks.__module__ != "redis.credentials"
        return own and (self._loop is not None or not self._provider.is_streaming())

    def _start(self) -> asyncio.AbstractEventLoop:
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), name="solely-tokens", daemon=True)
        self._thread.start()
        started.wait()
        assert self._loop is not None
        return self._loop

    def _run(self, started: threading.Event) -> None:
        import asyncio

        async def serve() -> None:
            self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
            started.set()
            await self._end.wait()

        asyncio.run(serve())

    def left_by(self, logins: Logins) -> None:
        """The logins are closed; with the last ones, the renewal ends."""
        with TokenStream._mutex:
            self._users.discard(logins)
            if self._users:
                return
            TokenStream._streams.pop(id(self._provider), None)
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            self._forget_renewal()
            with suppress(RuntimeError):  # its loop has ended
                loop.call_soon_threadsafe(self._end.set)
            thread.join(CLOSING)

    def forked(self) -> None:
        """In the child after a fork: neither the thread nor who held the mutex is here."""
        TokenStream._mutex = threading.Lock()
        if self._loop is not None:
            self._loop = self._thread = None
            self._forget_renewal()

    def _forget_renewal(self) -> None:
        """Has the next user of the provider, us or redis-py, start its renewal again. It has no public way to say that
        this has ended."""
        if getattr(self._provider, "_is_streaming", False):
            self._provider._is_streaming = False

    def _pushed(self, token: Any) -> _Done:
        for logins in list(self._users):
            logins.pushed(token)
        return _DONE

    def _failed(self, error: Exception) -> _Done:
        for logins in list(self._users):
            logins.failed(error)
        return _DONE


class _Done:
    """Has been done already, for providers that await what a listener returns."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


_DONE = _Done()


def _login(given: Any) -> Login:
    """The provider's answer as a Login; raises InvalidInput, without the answer, if it is none."""
    if isinstance(given, tuple) and len(given) in (1, 2):  # redis-py's providers may give the password alone
        given = Login("" if len(given) == 1 else given[0] or "", given[-1])
    texts = (given.username, given.password) if isinstance(given, Login) else (None,)
    if not all(isinstance(text, str) for text in texts):
        raise InvalidInput(f"it must return a solely.Login or (username, password), not {type(given).__name__}")
    if given.expires is not None and getattr(given.expires, "tzinfo", None) is None:
        raise InvalidInput("the expiry of a login must be a datetime with a time zone")
    login: Login = given
    return login


LoginAnswer = Login | tuple[str, str]
# A function, which may be a coroutine function; an object; a text that names one; or what was made of these before.
Credentials = Callable[[], LoginAnswer | Coroutine[Any, Any, LoginAnswer]] | CredentialProvider | str | Logins
