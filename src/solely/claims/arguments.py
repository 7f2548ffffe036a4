"""Derives the key, fingerprint and payload of a claim from the arguments of a call, for `@once.idempotent`."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from itertools import chain, count
from string import Formatter
from typing import Any

from ..errors import InvalidInput
from ..functions import coroutine_function, is_coroutine_function, plain_function

Key = str | Callable[..., str]


class KeyTemplate:
    """Formats keys so that different arguments never share one: "{a}:{b}" of ("x:y", "z") and of ("x", "y:z").

    In each field but the last, the character that ends it and the escape character are percent-encoded; all other
    text is as str.format writes it. Two fields without text between them are separated by `%/`.
    """

    def __init__(self, text: str) -> None:
        literals, self._fields = [""], list[str]()
        for literal, name, spec, conversion in Formatter().parse(text):
            literals[-1] += literal
            if name is not None:
                options = (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
                self._fields.append(f"{{{name}{options}}}")
                literals.append("")
        self._first, *between, self._after = literals if len(literals) > 1 else [text, ""]
        taken = {separator[:1] for separator in between}
        self._escape = next(c for c in chain("%~^", map(chr, count(0xA1))) if c not in taken)
        self._between = [separator or f"{self._escape}/" for separator in between]

    def format(self, arguments: dict[str, Any]) -> str:
        """The key of these arguments; raises what str.format raises if they do not fit."""
        if not self._fields:
            return self._first.format()
        *values, last = [field.format(**arguments) for field in self._fields]
        pairs = zip(values, self._between, strict=True)
        return self._first + "".join(self._ended(*pair) for pair in pairs) + last + self._after

    def _ended(self, value: str, separator: str) -> str:
        escaped = (self._escape, separator[0])
        if not any(c in value for c in escaped):  # the usual value
            return value + separator
        return "".join(self._code(c) if c in escaped else c for c in value) + separator

    def _code(self, character: str) -> str:
        return "".join(f"{self._escape}{byte:02X}" for byte in character.encode())


class CallArguments:
    """The key, the fingerprint and the payload of each call; raises InvalidInput if the function or the key is invalid.

    A text `key` may name arguments and their attributes, as in str.format: "charge:{order.id}".
    """

    def __init__(self, work: Callable[..., Any], key: Any, fingerprint: Any, *, awaited: bool) -> None:
        if awaited:
            coroutine_function("the work", work, "use a Client")
            if not is_coroutine_function(work):  # a lambda, of which it is not known before it is called
                raise InvalidInput(f"the work: {work!r:.80} is not a coroutine function; use a Client, or async def")
        else:
            plain_function("the work", work, "use an AsyncClient")
        if not callable(key) and (not isinstance(key, str) or not key):
            raise InvalidInput(
                f"key must be text such as 'charge:{{order.id}}', or a function of the call, not {key!r}"
            )
        if fingerprint is not None and not callable(fingerprint):
            raise InvalidInput(f"fingerprint must be a function of the call, not {fingerprint!r}")
        for what, function in (("key", key), ("fingerprint", fingerprint)):
            if callable(function):
                plain_function(what, function)
        self._key: Key = key
        self._template = _template(key) if isinstance(key, str) else KeyTemplate("")
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
            return self._template.format(arguments)
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


def _template(key: str) -> KeyTemplate:
    try:
        return KeyTemplate(key)
    except ValueError as error:
        raise InvalidInput(f"key {key!r} does not fit any call: {error}") from None
