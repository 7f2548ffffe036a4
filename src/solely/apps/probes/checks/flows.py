"""Login flows: steps that share a session. Values that one step extracts are used in the next, and a session that did
not stick is detected."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlencode, urljoin, urlsplit

import msgspec

from ....kit import AddressRefused, Caller, CallFailed, Request, Response, Timings, search_pattern
from ..model import FlowStep, ProbeTarget, filled, origin_of
from .expectations import at_path, decoded, unmet
from .outcome import Outcome, outcome_of, phases_of

_DENIED = (401, 403)  # what a server answers to somebody whose session it does not know
_FORM = {"content-type": "application/x-www-form-urlencoded"}


@dataclass
class FlowProgress:
    """What the steps so far have found out. `step` is the one that runs, "" if there are no steps."""

    values: dict[str, str]
    step: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    timings: Timings = field(default_factory=Timings)
    login_paths: set[str] = field(default_factory=set)  # to which a form was posted

    def named(self, error: str) -> str:
        """The error with the step in which it happened."""
        return f"step {self.step!r}: {error}" if self.step and error else error


async def check_flow(caller: Caller, target: ProbeTarget, progress: FlowProgress) -> Outcome:
    """The outcome of the first step that fails, or of the last one, with the time of each step. Raises CallFailed if
    there is no response, and InvalidInput if a request cannot be sent with the values that are filled in."""
    session = caller.session()
    outcome = Outcome("there are no steps")
    for step in target.steps:
        progress.step = step.name
        try:
            url = urljoin(target.url, filled(step.url, progress.values))
        except ValueError:  # its text may show what was extracted
            outcome = Outcome(progress.named("the values that are filled in make no URL"))
            break
        try:
            response = await session.call(_request(target, step, url, progress.values))
        except AddressRefused as refused:
            if url == urljoin(target.url, filled(step.url, target.values)):
                raise
            raise CallFailed(str(refused), permanent=True) from None  # what was extracted leads there, nobody else
        _count(progress, step, url, response)
        error, by_pattern = await _judged(target, step, response, progress, session.cookies)
        outcome = outcome_of(response, progress.named(error), by_pattern)
        if error:
            break
    return outcome._replace(phases=phases_of(progress.timings), steps=progress.seconds)


def _request(target: ProbeTarget, step: FlowStep, url: str, values: dict[str, str]) -> Request:
    headers = {name: filled(text, values) for name, text in (target.headers | step.headers).items()}
    body, method = filled(step.body, values), step.method
    if step.form:
        body = urlencode({name: filled(text, values) for name, text in step.form.items()})
        headers, method = _FORM | headers, "POST" if step.method == "GET" else step.method
    secrets = tuple(values.values())
    name = target.hostname if origin_of(url) == origin_of(target.url) else ""
    return Request(method, url, headers, body.encode(), secrets, max_redirects=target.max_redirects, server_name=name)


def _count(progress: FlowProgress, step: FlowStep, url: str, response: Response) -> None:
    progress.seconds[step.name] = progress.seconds.get(step.name, 0.0) + response.timings.total
    progress.timings = Timings(*map(sum, zip(progress.timings, response.timings, strict=True)))
    if step.form or step.method == "POST":
        progress.login_paths.add(urlsplit(url).path)


async def _judged(
    target: ProbeTarget, step: FlowStep, response: Response, progress: FlowProgress, cookies: dict[str, str]
) -> tuple[str, bool]:
    """What is wrong with this response, and whether a pattern says so; adds the values that it extracts."""
    if step.signed_in and (lost := _lost_session(target, response, progress, cookies)):
        return f"the session did not stick: {lost}", False
    error, by_pattern = await unmet(step.expect, response)
    if error:
        return error, by_pattern
    for name, source in step.extract.items():
        found = await _extracted(source, response, cookies)
        if found is None:
            return f"{name!r} was not found ({source.partition(':')[0]})", False
        progress.values[name] = found
    return "", False


def _lost_session(target: ProbeTarget, response: Response, progress: FlowProgress, cookies: dict[str, str]) -> str:
    """Why the server does not know the session, "" if it does."""
    if target.session_cookie and not cookies.get(target.session_cookie):
        return f"there is no cookie {target.session_cookie!r}"
    if not cookies:
        return "no cookie was set"
    if response.status in _DENIED:
        return f"the status is {response.status}"
    if urlsplit(response.url).path in progress.login_paths:
        return "the login page was shown again"
    return ""


async def _extracted(source: str, response: Response, cookies: dict[str, str]) -> str | None:
    """The value at this source; None if it is not there."""
    place, _, where = source.partition(":")
    if place == "cookie":
        return cookies.get(where)
    if place == "header":
        return response.headers.get(where)
    if place == "body":
        match = await search_pattern(where, response.text)
        return None if match is None else match[min(1, len(match) - 1)]
    try:
        found = at_path(decoded(response), where)
    except (LookupError, ValueError):
        return None
    if isinstance(found, str):
        return found
    return msgspec.json.encode(found).decode() if isinstance(found, int | float) else None  # such as true
