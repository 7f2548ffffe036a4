"""What is wrong with a response, by the expectations of a target. No text repeats what the response contains."""

from __future__ import annotations

import re
import time

import msgspec

from ....kit import Response, search_pattern
from ..model import Expectations, Scalar

_PATH = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")  # of a JSON path: a name, or an index


async def unmet(expected: Expectations, response: Response) -> tuple[str, bool]:
    """Why the response is not as expected, "" if it is; and True if a pattern says so."""
    late = expected.latency is not None and response.timings.total > expected.latency
    if not any(_is(response.status, each) for each in expected.status):
        return f"status {response.status} is not {' or '.join(map(str, expected.status))}", False
    if expected.body and await search_pattern(expected.body, response.text) is None:
        return f"the body does not contain {expected.body!r}", True
    if expected.body_not and await search_pattern(expected.body_not, response.text) is not None:
        return f"the body contains {expected.body_not!r}", True
    if expected.json and (wrong := _unequal(expected.json, response)):
        return wrong, False
    if late:
        return f"it took {response.timings.total:.3f} s, more than {expected.latency:g} s", False
    return unmet_certificate(expected, timestamp_of(response)), False


def unmet_certificate(expected: Expectations, expires: float | None) -> str:
    """Why the certificate is not as expected, "" if it is."""
    if expected.certificate_days is None:
        return ""
    if expires is None:
        return "there is no certificate whose end is known"
    days = (expires - time.time()) / 86_400
    return "" if days >= expected.certificate_days else f"the certificate ends in {days:.1f} days"


def timestamp_of(response: Response) -> float | None:
    """When the certificate expires, in seconds of UTC; None if that is unknown."""
    return None if response.certificate_expires is None else response.certificate_expires.timestamp()


def at_path(document: object, path: str) -> object:
    """The value at a path such as `$.checks[0].ok`; LookupError if there is none."""
    found = document
    for name, index in _PATH.findall(path.removeprefix("$")):
        if isinstance(found, list) and index:
            found = found[int(index)]
        elif isinstance(found, dict) and name:
            found = found[name]
        else:
            raise LookupError(path)
    return found


def decoded(response: Response) -> object:
    """The body as JSON; ValueError if it is something else, or is nested too deep."""
    try:
        return msgspec.json.decode(response.body)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _is(status: int, expected: int | str) -> bool:
    text = str(expected)
    return text == str(status) or (text.endswith("xx") and text[0] == str(status)[0])


def _unequal(expected: dict[str, Scalar], response: Response) -> str:
    try:
        document = decoded(response)
    except ValueError as invalid:  # of which msgspec.DecodeError is one, whose text may quote the body
        return "the body is not JSON" + ("" if isinstance(invalid, msgspec.DecodeError) else f": {invalid}")
    for path, value in expected.items():
        try:
            found = at_path(document, path)
        except LookupError:
            return f"the JSON has no {path}"
        if found != value or isinstance(found, bool) != isinstance(value, bool):
            return f"{path} in the JSON is not {value!r}"
    return ""
