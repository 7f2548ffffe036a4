"""Providers of logins that a text names, for settings and commands: `entra`, `entra: CLIENT-ID`, `command: …`, or
`module:name`."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from .credentials import Login, Logins, environment_of_others
from .errors import InvalidInput, SolelyError, missing_extra

COMMAND = "command:"
ENTRA = "entra"
COMMAND_TIMEOUT = 30.0  # seconds: such a command asks a service for a token, and retries

# What a token is for, by store.
_SCOPES = {
    "redis": "https://redis.azure.com/.default",
    "postgres": "https://ossrdbms-aad.database.windows.net/.default",
}


def logins_of(credentials: Any, store: str) -> Logins:
    """The logins of a provider, or of the one that a text names, for a store of this module name.

    Raises InvalidInput if the text names none, MissingExtra if it needs a package that is not installed.
    """
    if isinstance(credentials, Logins):
        return credentials
    if not isinstance(credentials, str):
        return Logins(credentials)
    name, _, identity = credentials.partition(":")
    return _entra(store, identity.strip()) if name == ENTRA else Logins(_named(credentials))


def _named(text: str) -> Any:
    if text.startswith(COMMAND):
        return _command(shlex.split(text.removeprefix(COMMAND)))
    module, colon, name = text.partition(":")
    if not colon or not name:
        raise InvalidInput(
            "credentials must be `entra`, `entra: CLIENT-ID`, `command: PROGRAM ARGUMENTS…`, or `module:name` of a "
            "provider in Python"
        )
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(f"credentials: {text!r:.80} cannot be imported: {error}") from None


def _entra(store: str, client_id: str) -> Logins:
    """The login of this machine or user in Microsoft Entra ID, as azure-identity finds it, or of the managed identity
    with this client id. Tokens are renewed by what uses them: redis-entraid has threads for that, which it never ends.
    """
    if store not in _SCOPES:
        raise InvalidInput("for MongoDB, let its driver ask Entra ID: authMechanism=MONGODB-OIDC in the URL")
    try:
        from azure.identity import DefaultAzureCredential

        if store == "redis":
            from redis_entraid.identity_provider import DefaultAzureCredentialProvider
    except ImportError as error:
        raise missing_extra("credentials `entra`", error.name, "entra") from None
    identity = DefaultAzureCredential(**({"managed_identity_client_id": client_id} if client_id else {}))

    def login() -> Login:
        if store == "redis":
            token = DefaultAzureCredentialProvider(identity, (_SCOPES[store],)).request_token()
            expires = datetime.fromtimestamp(token.get_expires_at_ms() / 1000, UTC)
            return Login(str(token.try_get("oid") or ""), token.get_value(), expires)
        access = identity.get_token(_SCOPES[store])
        return Login("", access.token, datetime.fromtimestamp(access.expires_on, UTC))

    return Logins(login, close=identity.close)


def _command(words: list[str]) -> Callable[[], Login]:
    """A program that prints the password, or JSON with `username`, `password` and `expires` (ISO 8601)."""
    if not words:
        raise InvalidInput("credentials: give a program after `command:`")

    def login() -> Login:
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, timeout=COMMAND_TIMEOUT, check=False, env=environment_of_others()
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SolelyError(f"{words[0]!r:.80} did not run: {type(error).__name__}") from None
        if done.returncode:  # its output may hold a secret
            raise SolelyError(f"{words[0]!r:.80} ended with code {done.returncode}")
        return _printed(done.stdout.strip())

    return login


def _printed(text: str) -> Login:
    if not text.startswith("{"):
        return Login("", text)
    try:
        fields = json.loads(text)
        expires = fields.get("expires")
        until = None if expires is None else datetime.fromisoformat(expires)
        return Login(str(fields.get("username", "")), str(fields["password"]), until)
    except (ValueError, KeyError, TypeError):
        raise SolelyError("the command printed JSON without a valid `password` or `expires`") from None
