"""Forms: what a form asks for, and the body that was entered. What is wrong with a field is said beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from ..acts import Field
from ..errors import InvalidInput
from .problems import INVALID, Problem
from .routes import Answer

B = TypeVar("B", bound=msgspec.Struct)
Checks = Mapping[str, Callable[[str], object]]  # by field: raises InvalidInput for a text that is not valid

REASON = Field("reason", "Reason", "kept in the audit log, with your name", rows=2, required=True)


class FormField(Answer):
    """A field of a form, which is hidden if it has no label. `choices` are suggestions, `longest` is in characters."""

    name: str
    label: str
    hint: str
    value: str
    error: str
    rows: int
    required: bool
    longest: int | None
    example: str
    choices: list[str]


class ActForm(Answer):
    """The form of an act. `facts` are details of what is affected by label, `other` addresses of other acts by their
    text; `error` concerns no single field."""

    question: str
    facts: dict[str, str]
    means: str
    fields: list[FormField]
    other: dict[str, str]
    error: str
    button: str
    danger: bool
    path: str
    back: str


class Entered(NamedTuple, Generic[B]):
    """The body that was entered, in which the fields that have errors are UNSET."""

    body: B
    errors: dict[str, str]


def entered(kind: type[B], fields: Iterable[Field], texts: Mapping[str, str], checks: Checks) -> Entered[B]:
    """The body of this kind that these texts are: an empty one counts as not given. Raises Problem if a field is
    invalid that the form does not ask for."""
    values, errors = dict[str, Any](), dict[str, str]()
    asked = {each.name for each in fields if each.label}
    for each in msgspec.structs.fields(kind):
        name, text = each.encode_name, texts.get(each.encode_name, "")
        try:
            if text := text.strip() if name in asked else text:
                checks.get(name, str)(text)
                values[each.name] = msgspec.convert(text, each.type, strict=False)
            elif each.required:
                raise InvalidInput("This is required.")
        except ValueError as error:  # also InvalidInput, and msgspec's own for a moment after the year 9999
            if name not in asked:
                raise Problem(INVALID, f"{name}: {error}") from None
            values[each.name], errors[name] = msgspec.UNSET, str(error)
    return Entered(kind(**values), errors)


def form_field(kind: Any, field: Field, value: str, error: str, choices: list[str]) -> FormField:
    """The field of a form for a body of this kind."""
    return FormField(
        name=field.name,
        label=field.label,
        hint=field.hint,
        value=value,
        error=error,
        rows=field.rows,
        required=field.required,
        longest=_longest(kind, field.name),
        example=field.example,
        choices=choices,
    )


def _longest(kind: Any, name: str) -> int | None:
    """The most characters of this field; None if its type does not say."""
    types = {each.encode_name: each.type for each in msgspec.structs.fields(kind)}
    return getattr(msgspec.inspect.type_info(types[name]), "max_length", None) if name in types else None
