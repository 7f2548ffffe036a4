"""Functions that callers give: one of the wrong kind is refused where it is declared, as its work would never run.

Whether a call returns an awaitable is known of `async def`, of `def`, and of partials and objects that call these. It
is not known of a lambda, of a builtin, or of a decorated coroutine function: those are accepted, and `finished` checks
what they return.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from inspect import (
    isasyncgen,
    isasyncgenfunction,
    isawaitable,
    iscoroutine,
    iscoroutinefunction,
    isfunction,
    isgenerator,
    isgeneratorfunction,
    ismethod,
    signature,
)
from typing import Any, TypeVar

from .errors import InvalidInput

T = TypeVar("T")


def plain_function(what: str, function: T, remedy: str = "give a plain function") -> T:
    """The function; raises InvalidInput if it is not callable, a coroutine function, or a generator."""
    inner = _called(what, function)
    if iscoroutinefunction(inner):
        raise InvalidInput(f"{what}: {_name(function)} is a coroutine function; {remedy}")
    return function


def coroutine_function(what: str, function: T, remedy: str = "give a coroutine function (async def)") -> T:
    """The function; raises InvalidInput if it is not callable, certainly returns no awaitable, or is a generator."""
    inner = _called(what, function)
    if _is_plain(inner):
        raise InvalidInput(f"{what}: {_name(function)} is not a coroutine function; {remedy}")
    return function


def work_function(what: str, function: T) -> T:
    """The function, which may be plain or a coroutine function; raises InvalidInput if it cannot be called, or is a
    generator, whose body would never run."""
    _called(what, function)
    return function


def items_function(what: str, function: T, remedy: str = "give a plain function") -> T:
    """The function, which returns items or is a generator of them; raises InvalidInput if it cannot be called, or is
    asynchronous."""
    if not callable(function):
        raise InvalidInput(f"{what} must be a function, not {function!r:.80}")
    inner = called_by(function)
    if iscoroutinefunction(inner) or isasyncgenfunction(inner):
        raise InvalidInput(f"{what}: {_name(function)} is asynchronous; {remedy}")
    return function


def asgi_application(what: str, function: T) -> T:
    """The application of an ASGI server; raises InvalidInput if it is one of WSGI, or no coroutine function."""
    return coroutine_function(what, _called_with(what, function, "scope", "receive", "send"))


def wsgi_application(what: str, function: T) -> T:
    """The application of a WSGI server; raises InvalidInput if it is one of ASGI, or a coroutine function. It may be a
    generator, as its server runs what it returns."""
    given = _called_with(what, function, "environ", "start_response")
    if iscoroutinefunction(called_by(given)):
        raise InvalidInput(f"{what}: {_name(function)} is a coroutine function; give an application of WSGI")
    return given


def _called_with(what: str, function: T, *arguments: str) -> T:
    """The application; raises InvalidInput if it cannot be called with these arguments."""
    if not callable(function):
        raise InvalidInput(f"{what} must be an application, not {function!r:.80}")
    try:
        taken = signature(function)
    except (TypeError, ValueError):  # of a builtin it is not known
        return function
    try:
        taken.bind(*arguments)
    except TypeError:
        expected = ", ".join(arguments)
        raise InvalidInput(f"{what}: {_name(function)} is not called with ({expected}): another interface") from None
    return function


def is_coroutine_function(function: Any) -> bool:
    """True if a call of the function certainly returns an awaitable."""
    return iscoroutinefunction(_called("it", function))


def finished(what: str, result: T) -> T:
    """The result of a plain function; raises InvalidInput if its work has not been done, since it is an awaitable or a
    generator."""
    if isgenerator(result) or isasyncgen(result):
        raise InvalidInput(f"{what} returned a generator, which nothing here runs: its work was not done")
    if isawaitable(result):
        if iscoroutine(result):
            result.close()  # else Python warns that it was never awaited
        raise InvalidInput(f"{what} returned an awaitable, which nothing here awaits: its work was not done")
    return result


def begun(what: str, result: Awaitable[T]) -> Awaitable[T]:
    """The result of a function that must be awaited; raises InvalidInput if it is none that can be."""
    if not isawaitable(result):
        raise InvalidInput(f"{what} returned {result!r:.80} in place of an awaitable: give a coroutine function")
    return result


def called_by(function: Any) -> Any:
    """The function that a partial or an object calls."""
    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    if not (isfunction(inner) or ismethod(inner) or isinstance(inner, type) or iscoroutinefunction(inner)):
        call = type(inner).__call__
        inner = call if isfunction(call) else inner
    return inner


def _called(what: str, function: Any) -> Any:
    """What a call of the function runs; raises InvalidInput if that is nothing, or a generator."""
    if not callable(function):
        raise InvalidInput(f"{what} must be a function, not {function!r:.80}")
    inner = called_by(function)
    if isgeneratorfunction(inner) or isasyncgenfunction(inner):
        raise InvalidInput(f"{what}: {_name(function)} is a generator: a call of it runs nothing")
    return inner


def _is_plain(inner: Any) -> bool:
    """True if a call certainly returns no awaitable, as far as a declaration can say."""
    function = inner.__func__ if ismethod(inner) else inner
    if not isfunction(function) or function.__name__ == "<lambda>" or iscoroutinefunction(function):
        return False
    if hasattr(function, "__wrapped__"):  # a decorator may return what the function that it wraps returned
        return False
    if "return" in function.__annotations__:  # `def` may hand on what another one returns, and says so
        return not any(word in str(function.__annotations__["return"]) for word in ("Awaitable", "Coroutine", "Any"))
    return True


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", repr(function)))[:80]
