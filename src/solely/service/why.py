"""Why: facts in, sentences out. One declaration explains a subject in the same words on a page, in the API and on the
command line.

    WHY = Explainer("probes", "target", Paused, title="Why is it not probed?", hint="the name of the target")
    routes = WHY.routes(self.explain)  # async def explain(target: str) -> Paused, a subclass of Explained
    command.add_command(why_command("probes", "target", "Explains why TARGET is not probed."))  # in cli.py
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from .dashboard.rendering import READ_PAGE, Page, View, show
from .routes import READ, Answer, Body, Call, Route

E = TypeVar("E", bound="Explained")

MAX_SUBJECT = 512  # characters: as many as a key has bytes
FRESH = 1.0  # seconds that an explanation is shared by all viewers of its page


class Explained(Answer):
    """What is known about a subject. `verdict` says what follows from it, the most important sentence first; a subclass
    adds the facts."""

    verdict: list[str]


class ExplainedView(Answer):
    """The data of a page: the explanation, null without a subject, and the labels of the form."""

    subject: str
    why: Any
    argument: str
    hint: str
    longest: int


class Explainer(Generic[E]):
    """The route `GET /api/<name>/why` and the page `/<name>/why`, with the subject in the query under `argument`.

    `form` is the type of the explanation. The template gets an ExplainedView; `solely:why.html` shows the verdict, and
    one that extends it shows the facts in its block `facts`.
    """

    def __init__(
        self,
        name: str,
        argument: str,
        form: type[E],
        *,
        title: str,
        hint: str = "",
        template: str = "solely:why.html",
        most: int = MAX_SUBJECT,
    ) -> None:
        self._name, self._argument, self._form = name, argument, form
        self._labels: Any = {"argument": argument, "hint": hint, "longest": most}
        self._page = Page(title, template, f"/{name}")
        subject = Annotated[str, msgspec.Meta(min_length=1, max_length=most)]
        self._query = msgspec.defstruct("WhyQuery", [(argument, subject)], bases=(Body,), kw_only=True)
        optional = Annotated[str, msgspec.Meta(max_length=most)]
        self._view = msgspec.defstruct("WhyPageQuery", [(argument, optional, "")], bases=(View,), kw_only=True)

    def routes(self, explain: Callable[[str], Awaitable[E]]) -> list[Route]:
        """The route and the page; `explain` returns the explanation of a subject, and changes nothing."""

        async def answer(call: Call[None, Any]) -> Any:
            return await explain(getattr(call.query, self._argument))

        async def page(call: Call[None, Any]) -> object:
            return await show(call, self._page, lambda: self._load(call, explain))

        answer.__annotations__ = {"call": Call[None, self._query], "return": self._form}  # type: ignore[name-defined]
        page.__annotations__ = {"call": Call[None, self._view], "return": object}  # type: ignore[name-defined]
        return [
            Route("GET", f"/api/{self._name}/why", READ, answer, f"Explain: {self._page.title}"),
            Route("GET", f"/{self._name}/why", READ_PAGE, page, self._page.title, hidden=True),
        ]

    async def _load(self, call: Call[None, Any], explain: Callable[[str], Awaitable[E]]) -> ExplainedView:
        subject: str = getattr(call.query, self._argument)
        views, key = call.service.dashboard.views, ("why", self._name, subject)
        why = await views.share(key, FRESH, lambda: explain(subject)) if subject else None
        return ExplainedView(subject=subject, why=why, **self._labels)
