"""Login flows: steps that share a session. Values that one step extracts are used in the next, and a session that did
not stick is detected."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import urlencode, urljoin, urlsplit

from ....kit import Caller, Request, Response, Timings
from ..model import FlowStep, ProbeTarget, filled
from .expectations import at_path, decoded, unmet
from .outcome import Outcome, outcome_of, phases_of

_DENIED = (401, 403)  # what a server answers to somebody whose session it does not know
_FORM = {"content-type": "application/x-www-form-urlencoded"}


@dataclass
class _Progress:
    """What the steps so far have found out."""

    values: dict[str, str]
    seconds: dict[str, float] = field(default_factory=dict)
    timings: Timings = field(default_factory=Timings)
    login_paths: set[str] = field(default_factory=set)  # to which a form was posted


async def check_flow(caller: Caller, target: ProbeTarget) -> Outcome:
    """The outcome of the first step that fails, or of the last one, with the time of each step. Raises CallFailed if
    there is no response."""
    session, progress = caller.session(), _Progress(dict(target.values))
    outcome = Outcome("there are no steps")
    for step in target.steps:
        url = urljoin(target.url, filled(step.url, progress.values))
        response = await session.call(_request(target, step, url, progress.values))
        _count(progress, step, url, response)
        error, by_pattern = _judged(target, step, response, progress, session.cookies)
        outcome = outcome_of(response, f"step {step.name!r}: {error}" if error else "", by_pattern)
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
    return Request(method, url, headers, body.encode(), secrets, max_redirects=target.max_redirects)


def _count(progress: _Progress, step: FlowStep, url: str, response: Response) -> None:
    progress.seconds[step.name] = progress.seconds.get(step.name, 0.0) + response.timings.total
    progress.timings = Timings(*map(sum, zip(progress.timings, response.timings, strict=True)))
    if step.form or step.method == "POST":
        progress.login_paths.add(urlsplit(url).path)


def _judged(
    target: ProbeTarget, step: FlowStep, response: Response, progress: _Progress, cookies: dict[str, str]
) -> tuple[str, bool]:
    """What is wrong with this response, and whether a pattern says so; adds the values that it extracts."""
    if step.signed_in and (lost := _lost_session(target, response, progress, cookies)):
        return f"the session did not stick: {lost}", False
    error, by_pattern = unmet(step.expect, response)
    if error:
        return error, by_pattern
    for name, source in step.extract.items():
        found = _extracted(source, response, cookies)
        if found is None:
            return f"{name!r} was not found ({source.partition(':')[0]})", False
        progress.values[name] = found
    return "", False


def _lost_session(target: ProbeTarget, response: Response, progress: _Progress, cookies: dict[str, str]) -> str:
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


def _extracted(source: str, response: Response, cookies: dict[str, str]) -> str | None:
    """The value at this source; None if it is not there."""
    place, _, where = source.partition(":")
    if place == "cookie":
        return cookies.get(where)
    if place == "header":
        return response.headers.get(where)
    if place == "body":
        match = re.search(where, response.text)
        return None if match is None else match[1] if match.re.groups else match[0]
    try:
        return str(at_path(decoded(response), where))
    except (LookupError, ValueError):
        return None
