"""Acts: makes the API route and the form of a declaration (`Act`), and has the audit log say what became of each act.

The form shows what would be affected now, and asks for what is still needed. If something is wrong, it is shown again
with all that was entered. With `dry_run` the API, and so the command, says what would be affected.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from starlette.responses import RedirectResponse, Response

from ..acts import Act, Field, Listing
from ..audit import DONE, NOTHING
from ..errors import InvalidInput, SolelyError
from ..integrations.idempotency import ProblemKind
from ..rules import duration
from .dashboard.rendering import Page, View, html, show, with_headers
from .forms import REASON, ActForm, Checks, Entered, entered, form_field
from .problems import INVALID, UNKNOWN, Problem
from .responses import logged_problem
from .routes import Answer, Bearer, Body, Call, Reason, Route, types_of
from .security import Scope

__all__ = ["Act", "Affected", "Field", "Listing", "act_routes"]

B = TypeVar("B", bound=msgspec.Struct)
A = TypeVar("A")
Texts = dict[str, str]

CHECK = "Nothing was done: check what is marked below."


@dataclass(frozen=True)
class Affected:
    """What an act would affect now: `what` follows its verb, `facts` are details by label. For the form: the `values`
    with which fields start, the `choices` that it suggests for them, and addresses of `other` acts by their text."""

    what: str
    facts: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, list[str]] = field(default_factory=dict)
    other: Mapping[str, str] = field(default_factory=dict)


class DryRun(Body):
    """With `dry_run`, nothing is done: the response says what would be affected."""

    dry_run: bool = False


class WouldDo(Answer):
    """The response to a dry run: what would be done, as a phrase after "would", and its details."""

    would: str
    facts: dict[str, str]


def act_routes(
    act: Act,
    perform: Callable[[Call[B, None]], Awaitable[A | None]],
    affected: Callable[[Call[Any, Any], B], Awaitable[Affected | None]] | None = None,
    *,
    outcome: Callable[[A], str] | None = None,
    note: Callable[[A], str] | None = None,
    back: Callable[[B], str] | None = None,
    checks: Checks | None = None,
    refusals: tuple[ProblemKind, ...] = (),
) -> list[Route]:
    """The routes of an act: that of the API, and the two of its form.

    `perform` is annotated like the handler of a route; it returns None, as `affected` does, if there is nothing to act
    on. A bool or an int that it returns is the field `changed` of the answer. The body of an act that needs a reason
    has one, `call.reason`, also if its type does not declare it. `affected` gets a body in which fields that the form
    asks for may be UNSET; without it, the form and the dry run repeat what was entered. `outcome` is for the audit log,
    by default by the field `changed`; `note` names what the page says afterwards; `back` is its address, by default
    that of the act. `checks` by field raise InvalidInput for texts of the form that the types of the body let through;
    a text that a command reads as a duration must be one.
    """
    kind, _, answer = types_of(perform)
    if answer in (bool, int):
        if not act.changed:
            raise InvalidInput(f"the act {act.name} answers {answer.__name__}: name the field, as in changed='expired'")
        name = "".join(part.capitalize() for part in act.name.replace("-", ".").split("."))
        answer = msgspec.defstruct(f"{name}Answer", [(act.changed, answer)], bases=(Answer,))
        perform = _wrapped(perform, answer)
    if act.needs_reason and "reason" not in kind.__struct_fields__:
        kind = _with_reason(kind)
    affected = affected or _Repeated(act)
    return _ServedAct(act, perform, affected, kind, answer, outcome, note, back, checks or {}).routes(refusals)


@cache
def _with_reason(kind: type[msgspec.Struct]) -> Any:
    """The body with a reason: one type for all acts that share the body, with a name of its own in the API's schema."""
    return msgspec.defstruct(f"{kind.__name__}WithReason", [("reason", Reason)], bases=(kind,), kw_only=True)


@dataclass(frozen=True)
class _Repeated:
    """What an act affects, as far as the body says it."""

    act: Act

    async def __call__(self, call: Call[Any, Any], body: msgspec.Struct) -> Affected:
        return Affected(key_of(self.act, body))


def key_of(act: Act, body: msgspec.Struct) -> str:
    """What it acts on, for the audit log: the `key` of the body, else its fields that are no options."""
    if hasattr(body, "key"):
        return str(body.key)
    found = (getattr(body, each.name) for each in act.fields if not each.option)
    given = (each for each in found if each is not msgspec.UNSET)
    return " ".join(", ".join(each) if isinstance(each, list) else str(each) for each in given)


@dataclass(frozen=True)
class _ServedAct(Generic[B, A]):
    """An act with its handlers, and the types of its body and answer."""

    act: Act
    perform: Callable[[Call[B, None]], Awaitable[A | None]]
    affected: Callable[[Call[Any, Any], B], Awaitable[Affected | None]]
    kind: type[B]
    answer: Any
    outcome: Callable[[A], str] | None
    note: Callable[[A], str] | None
    back: Callable[[B], str] | None
    checks: Checks

    def routes(self, refusals: tuple[ProblemKind, ...]) -> list[Route]:
        act, scope = self.act, Scope[self.act.scope.upper()]
        options: Any = {"refusals": (UNKNOWN, *refusals), "again": act.again, "keyed": act.keyed, "audits": True}
        called: Any = Call[self.kind, DryRun]  # type: ignore[name-defined]  # mypy: a type that is known at run time
        api = _annotated(self.answer_api, called, self.answer | WouldDo)
        routes = [Route("POST", act.api, Bearer(scope), api, act.summary, **options)] if act.api else []
        return [*routes, *self._form_routes(Bearer(scope, page=True))] if act.page else routes

    def _form_routes(self, auth: Bearer) -> list[Route]:
        act, texts = self.act, [(each.name, str, "") for each in self._fields]
        query: Any = msgspec.defstruct("ActQuery", texts, bases=(View,), kw_only=True)
        form: Any = msgspec.defstruct("ActTexts", texts, bases=(Body,), kw_only=True)
        ask, submit = _annotated(self.ask, Call[None, query]), _annotated(self.submit, Call[form, None])
        return [
            Route("GET", act.page, auth, ask, act.title, hidden=True),
            Route("POST", act.page, auth, submit, act.title, form=True, hidden=True, audits=True),
        ]

    @property
    def _fields(self) -> tuple[Field, ...]:
        return (*self.act.fields, REASON) if self.act.needs_reason else self.act.fields

    # -- the act

    async def answer_api(self, call: Call[B, DryRun]) -> object:
        """The answer; or, for a dry run, what would be affected. Raises Problem if there is nothing to act on."""
        if call.query.dry_run:
            found = await self._look(call, call.body)
            return WouldDo(would=f"{self.act.verb} {found.what}", facts=dict(found.facts))
        answer = await self._act(call, call.body)
        return answer if answer is not None else self._refuse()

    async def _look(self, call: Call[Any, Any], body: B) -> Affected:
        found = await self.affected(call, body)
        return found if found is not None else self._refuse()

    def _refuse(self) -> Any:
        raise Problem(UNKNOWN, self.act.nothing)

    async def _act(self, call: Call[Any, Any], body: B) -> A | None:
        """The handler's answer; the audit log says what became of the act."""
        call.body = body
        if not self.act.audited:
            return await self.perform(call)
        who, key = call.principal.name, key_of(self.act, body)
        async with call.service.audit.acting(who, self.act.name, key, call.reason) as record:
            answer = await self.perform(call)
            record.outcome = self._outcome(answer)
            return answer

    def _outcome(self, answer: A | None) -> str:
        if answer is None or (self.act.changed and not getattr(answer, self.act.changed)):
            return NOTHING
        return DONE if self.outcome is None else self.outcome(answer)

    # -- its form

    async def ask(self, call: Call[None, Any]) -> object:
        """The form, with what would be affected and with the values of its address."""
        texts = _texts(call.query)

        async def load() -> ActForm:
            body = self._entered(texts).body
            return self._form(texts, Entered(body, {}), await self._look(call, body))

        return await show(call, self._page, load)

    async def submit(self, call: Call[Any, None]) -> Response:
        """Performs the act and redirects to where its effect is seen; else shows the form again, and what is wrong."""
        texts = _texts(call.body)
        known = self._entered(texts)
        if known.errors:
            return await self._again(call, texts, known, Problem(INVALID, CHECK))
        try:
            return RedirectResponse(self._after(known.body, await self._act(call, known.body)), 303)
        except Problem as problem:
            return await self._again(call, texts, known, problem)
        except SolelyError as error:
            return await self._again(call, texts, known, logged_problem(error, call.path))
        finally:
            call.service.dashboard.views.clear()

    async def _again(self, call: Call[Any, Any], texts: Texts, known: Entered[B], problem: Problem) -> Response:
        try:
            found: Affected | None = await self._look(call, known.body)
        except (Problem, SolelyError):  # the form is shown all the same, so that nothing is lost
            found = None
        form = self._form(texts, known, found, problem.document.detail)
        return with_headers(html(call, self._page, form, problem.kind.status), problem)

    def _entered(self, texts: Texts) -> Entered[B]:
        durations = {each.name: duration for each in self._fields if each.reading == "duration"}
        return entered(self.kind, self._fields, texts, {**durations, **self.checks})

    def _form(self, texts: Texts, known: Entered[B], found: Affected | None, error: str = "") -> ActForm:
        act, shown = self.act, found or Affected("")
        values = dict(shown.values) | {name: text for name, text in texts.items() if text or error}
        return ActForm(
            question=f"{act.verb.capitalize()} {shown.what}?" if found else act.title,
            facts=dict(shown.facts),
            means=act.means,
            fields=[
                form_field(
                    self.kind,
                    each,
                    values.get(each.name, ""),
                    known.errors.get(each.name, ""),
                    shown.choices.get(each.name, []),
                )
                for each in self._fields
            ],
            other=dict(shown.other),
            error=error,
            button=act.verb.capitalize(),
            danger=act.needs_reason,
            path=act.page,
            back=self._back(known.body),
        )

    @property
    def _page(self) -> Page:
        return Page(self.act.title, "solely:act.html", self.act.place)

    def _back(self, body: B) -> str:
        if self.back is not None:
            return self.back(body)
        values = {name: quote(str(value), safe="") for name, value in msgspec.structs.asdict(body).items()}
        return (self.act.back or self.act.place).format_map(values)

    def _after(self, body: B, answer: A | None) -> str:
        """The address to which the form returns, with the note that the page shows there."""
        done = "ended" if self.act.audited else "done"
        note = "moved-on" if self._outcome(answer) == NOTHING else done
        if answer is not None and self.note is not None:
            note = self.note(answer)
        address, mark, anchor = self._back(body).partition("#")
        return f"{address}{'&' if '?' in address else '?'}{urlencode({'note': note})}{mark}{anchor}"


def _wrapped(perform: Callable[[Any], Awaitable[Any]], answer: Any) -> Any:
    """The handler, with what it returns in an answer of this type."""

    async def wrapped(call: Any) -> Any:
        changed = await perform(call)
        return None if changed is None else answer(changed)

    return wrapped


def _annotated(handler: Callable[[Any], Awaitable[object]], call: Any, answer: Any = object) -> Any:
    """The handler, with the annotations from which a route reads its types."""

    async def annotated(call: Any) -> object:
        return await handler(call)

    annotated.__annotations__ = {"call": call, "return": answer}
    return annotated


def _texts(given: msgspec.Struct) -> Texts:
    """The texts of a form or its address, without the fields that every view has."""
    return {name: text for name, text in msgspec.structs.asdict(given).items() if name not in View.__struct_fields__}
