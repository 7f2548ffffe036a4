"""Section 2.1: the field is one Structured Field String; anything else is refused."""

from __future__ import annotations

from .checking import Check, Checklist, expect, expect_repeat, first
from .target import Lines, Target, fresh, quoted

CHECKS = Checklist()

RFC = "RFC 9651"
LONG = 2_000  # characters: far longer than any sensible key, far shorter than the limit of servers


@CHECKS.check("2.1", "a quoted string is accepted")
def string_is_accepted(target: Target) -> None:
    first(target.send(lines=[quoted(fresh())]))


@CHECKS.check(RFC, 'a string with \\" and \\\\ in it is accepted as one key')
def escapes_are_accepted(target: Target) -> None:
    key = f'{fresh()}"\\'
    expect_repeat(first(target.send(key)), target.send(key))


@CHECKS.check(RFC, "parameters of the item are ignored")
def parameters_are_ignored(target: Target) -> None:
    key = fresh()
    expect_repeat(first(target.send(key)), target.send(lines=[f'{quoted(key)}; hint=1;v="2"']))


def _refused(name: str, text: str, *lines: str | bytes) -> None:
    """Adds a check that these field lines, with a new key for each {}, get a 400."""

    def send(target: Target) -> None:
        sent: Lines = [_filled(line) for line in lines]
        reply = target.send(lines=sent)
        expect(reply.status == 400, "400", reply)

    CHECKS.append(Check(name, "2.1" if "string" not in name else RFC, text, send))


def _filled(line: str | bytes) -> str | bytes:
    return line.replace("{}", fresh()) if isinstance(line, str) else line.replace(b"{}", fresh().encode())


_refused("token_is_refused", "a token (unquoted) → 400", "key{}")
_refused("unquoted_uuid_is_refused", "an unquoted UUID → 400", "8e03978e-40d5-43e8-bc93-{}")
_refused("number_is_refused", "a number → 400", "42")
_refused("decimal_is_refused", "a decimal → 400", "4.2")
_refused("boolean_is_refused", "a boolean → 400", "?1")
_refused("byte_sequence_is_refused", "a byte sequence → 400", ":{}:")
_refused("list_is_refused", "a list → 400", '"{}", "{}"')
_refused("inner_list_is_refused", "an inner list → 400", '("{}")')
_refused("two_fields_are_refused", "two field lines → 400", '"{}"', '"{}"')
_refused("bad_escape_in_string_is_refused", "a bad escape → 400", '"{}\\n"')
_refused("unended_string_is_refused", "a string without its end → 400", '"{}')
_refused("text_after_string_is_refused", "text after the string → 400", '"{}" and more')
_refused("string_with_non_ascii_is_refused", "a string with non-ASCII characters → 400", b'"{}\xc3\xa9"')


@CHECKS.check("safety", "an empty key → 400")
def empty_key_is_refused(target: Target) -> None:
    reply = target.send("")
    expect(reply.status == 400, "400", reply)


@CHECKS.check("5", f"a key of {LONG:,} characters → 400: the length is limited and checked")
def overlong_key_is_refused(target: Target) -> None:
    reply = target.send(fresh() + "x" * LONG)
    expect(reply.status in (400, 431), "400 (or 431 from the server)", reply)
