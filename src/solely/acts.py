"""Acts: what people do to what others hold, declared once, in the words that the API, the form and the command share.

A declaration is plain data. `service/acts.py` makes the route and the form of it, `cli/acts.py` the command, which
therefore starts without importing the service. Lists are declared in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# How a command reads the text of a field; a form sends the text as it is. `lines` takes several values, which the form
# reads one per line; `ago` is a duration before now, sent as a moment in seconds since 1970.
Reading = Literal["text", "lines", "duration", "ago", "flag", "number"]


@dataclass(frozen=True)
class Field:
    """A field of an act's body, or of a list's query, as people enter it.

    A form asks for fields that have a label, in so many rows if there are `rows`; the others come with its address. A
    command takes a field without `option` as an argument, which is required unless it has a default.
    """

    name: str
    label: str = ""
    hint: str = ""
    option: str = ""
    reading: Reading = "text"
    default: str | int | None = None
    required: bool = False  # on the form, and as an option
    rows: int = 0
    example: str = ""


@dataclass(frozen=True, kw_only=True)
class Act:
    """An act. Its `verb` and what it affects are the sentence that says what would be done: "end the window …".

    `name` is the action in the audit log, which every act of an admin has, and any other that is `audited`; it ends
    with the verb, unless that is given. `api` and `page` are the paths of its route and of its form, made of the name
    unless they are given; with an empty one there is none. `means` says what follows, and `nothing` why there may be
    nothing to do: then the field `changed` of the answer is false or 0, or there is none. `again` says what a repeat of
    the request does. The form returns to `back`, in which {names} stand for fields of the body, by default to the page
    above it. A command `asks` for confirmation if the act cannot be undone; it prints the answer, with `times`
    as times, if the act `shows` it.
    """

    name: str
    summary: str
    again: str
    verb: str = ""
    title: str = ""  # of the form; by default the summary
    means: str = ""
    nothing: str = "There is nothing to do."
    scope: Literal["write", "admin"] = "admin"
    api: str = "/api/{name}"
    page: str = "/{name}"
    back: str = ""
    fields: tuple[Field, ...] = ()
    changed: str = ""
    keyed: bool = False  # repeats with the same Idempotency-Key get the first response
    audited: bool = True
    asks: bool = True
    shows: bool = False
    times: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Completes what was left to its defaults."""
        path = self.name.replace(".", "/")
        paths = {"api": self.api.replace("{name}", path), "page": self.page.replace("{name}", path)}
        words = {"title": self.title or self.summary, "verb": self.verb or self.name.rpartition(".")[2]}
        for field, value in (*paths.items(), *words.items()):
            object.__setattr__(self, field, value)

    @property
    def needs_reason(self) -> bool:
        """True if it overrides what others hold: who does it must say why."""
        return self.scope == "admin"

    @property
    def place(self) -> str:
        """The page above its form: where that is in the navigation, and where it returns to."""
        return "/" + self.page.split("/")[1]

    @property
    def past(self) -> str:
        """What is said when it is done: "ended"."""
        return self.verb + ("d" if self.verb.endswith("e") else "ed")


@dataclass(frozen=True)
class Listing:
    """A list: the path of its route, the field of the answer that has the rows, and the columns of a table of them.

    `more` columns are shown if the table is wide; `times` are shown as times, `shares` as percentages. A column of
    `inner` is found inside of other fields: (("severity", "alert.severity"),). A cell that would be empty shows the
    text of `blank`, in which {names} stand for other fields of the row. `none` is said if there are no rows.
    """

    path: str
    rows: str
    summary: str
    columns: tuple[str, ...]
    more: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    blank: tuple[tuple[str, str], ...] = ()
    inner: tuple[tuple[str, str], ...] = ()
    none: str = ""


def limit(rows: int) -> Field:
    """--limit: the most rows of a page, this many unless it is given."""
    return Field("limit", hint="The most rows.", option="--limit", reading="number", default=rows)


def after(what: str) -> Field:
    """--after: the page that follows the one that ended with this."""
    return Field("after", hint="Continue where the last page ended.", option="--after", example=what)
