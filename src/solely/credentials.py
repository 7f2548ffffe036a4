"""Logins that change: a provider gives the user name and the password whenever a store connects.

If a login says when it expires, the next one is fetched in time, and connections that are open log in again. Secrets
are in no repr, no log line and no error.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from .errors import InvalidInput, SolelyError, StoreUnavailable

log = logging.getLogger("solely")

RENEW_AT = 0.7  # of the life that a login has left: leaves time for several tries; redis-entraid does the same
LEAST_REST = 1.0  # seconds between two requests to the provider because of an expiry: it may be rate limited


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
    `get_credentials()` as redis-py has them. It is called on a thread, and may be a coroutine function."""

    def __init__(self, provider: Any, *, now: Callable[[], float] = time.time) -> None:
        self._ask: Any = getattr(provider, "get_credentials", provider)
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
        if callable(getattr(provider, "on_next", None)):  # a StreamingCredentialProvider of redis-py
            provider.on_next(self._pushed)
            provider.on_error(self._failed)

    def _reset(self) -> None:
        self._asking = threading.Lock()
        self._background: threading.Thread | None = None

    def forked(self) -> None:
        """In the child after a fork: the parent's threads are not here."""
        self._reset()

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
            self._failed(error)

    def _asked(self) -> Login:
        import asyncio  # here, as few providers need it, and it takes long to import

        try:
            given = self._ask()
            login = _login(asyncio.run(given) if inspect.iscoroutine(given) else given)
        except Exception as error:  # noqa: BLE001 - whatever the provider raises, there is no login
            known = self.current
            if known is None or known.expires is None or known.expires.timestamp() <= self._now():
                raise StoreUnavailable(f"the credentials provider failed: {self._without_secrets(error)}") from None
            self._failed(error)
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

    def _pushed(self, token: Any) -> None:
        """A streaming provider has a new login."""
        expires = datetime.fromtimestamp(token.get_expires_at_ms() / 1000, UTC)
        self._note(Login(str(token.try_get("oid") or ""), str(token.get_value()), expires))

    def _failed(self, error: Exception) -> None:
        facts = {"error": self._without_secrets(error)}
        log.warning("login_not_renewed: the credentials provider failed: %(error)s", facts, extra=facts)

    def _without_secrets(self, error: Exception) -> str:
        text = f"{type(error).__name__}: {error}"
        return text.replace(self.current.password, "…") if self.current is not None and self.current.password else text

    def __repr__(self) -> str:
        return f"<Logins {self.current}>"


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
