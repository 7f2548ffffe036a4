"""Derives the key, fingerprint and payload of a claim from the arguments of a call, for `@once.idempotent`."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, signature
from typing import Any

from ..errors import InvalidInput

Key = str | Callable[..., str]


class CallArguments:
    """The key, the fingerprint and the payload of each call; raises InvalidInput if the function or the key is invalid.

    A text `key` may name arguments and their attributes, as in str.format: "charge:{order.id}".
    """

    def __init__(self, work: Callable[..., Any], key: Any, fingerprint: Any, *, awaited: bool) -> None:
        name = getattr(work, "__qualname__", work)
        if isgeneratorfunction(work) or isasyncgenfunction(work):
            raise InvalidInput(f"{name} is a generator: its values are not one result that can be kept")
        if iscoroutinefunction(work) != awaited:
            what = (
                "a coroutine function; use an AsyncClient" if not awaited else "not a coroutine function; use a Client"
            )
            raise InvalidInput(f"{name} is {what}")
        if not callable(key) and (not isinstance(key, str) or not key):
            raise InvalidInput(
                f"key must be text such as 'charge:{{order.id}}', or a function of the call, not {key!r}"
            )
        if fingerprint is not None and not callable(fingerprint):
            raise InvalidInput(f"fingerprint must be a function of the call, not {fingerprint!r}")
        self._key: Key = key
        self._fingerprint: Callable[..., Any] | None = fingerprint
        self._signature = signature(work)
        self._places = tuple(self._signature.parameters)
        kinds = {each.kind for each in self._signature.parameters.values()}
        self._plain = kinds <= {Parameter.POSITIONAL_OR_KEYWORD}

    def key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The claim's key for this call; raises InvalidInput if the text `key` does not fit its arguments."""
        if not isinstance(self._key, str):
            return self._key(*args, **kwargs)
        arguments = self._arguments(args, kwargs)
        try:
            return self._key.format(**arguments)
        except (KeyError, IndexError, AttributeError, TypeError, ValueError) as error:
            raise InvalidInput(f"key {self._key!r} does not fit this call: {error!r}") from None

    def fingerprint(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The payload to compare calls by; None if they are not compared."""
        return None if self._fingerprint is None else self._fingerprint(*args, **kwargs)

    def payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, for a dead letter of this call."""
        return self._arguments(args, kwargs)

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if self._plain and not kwargs and len(args) == len(self._places):  # the usual call, which needs no bind
            return dict(zip(self._places, args, strict=True))
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)
