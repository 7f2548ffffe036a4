"""The policy page that the draft requires a resource to publish, generated from the rules that are enforced."""

from __future__ import annotations

from html import escape

from .problems import CONFLICT, PROBLEMS, STILL_RUNNING
from .response import HttpResponse
from .rules import Rules

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Idempotency policy</title>
<style>body {{ max-width: 44rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 system-ui }}
code {{ background: #8882 }} dt {{ margin-top: 1rem; font-weight: bold }}</style>
<h1>Idempotency policy</h1>
<p>Send <code>Idempotency-Key: "8e03978e-40d5-43e8-bc93-6894a57f9324"</code> (a fresh UUID of your own, in double
quotes) with a request, and the same one with every retry of it: it is processed once, and every retry gets the same
response, marked <code>Idempotent-Replayed: true</code>. See draft-ietf-httpapi-idempotency-key-header.</p>
<ul>
<li>Methods: {methods}. The key is {required}.</li>
<li>Form of a key: <code>{form}</code>, as a Structured Field String (RFC 9651){bare}.</li>
<li>Expiry: a key and its response are kept for {keep:g} seconds; <code>Idempotency-Expires</code> says until when.
Later, the same key is a new request.</li>
<li>Fingerprint: method, host, path, query and payload must be the same when a key is used again.</li>
<li>Keys belong to the client that sent them: two clients' keys never conflict.</li>
<li>While the first request is being processed, a copy {in_flight}.</li>
<li>After {released} the key is free again, and a retry is processed. Every other response is kept.</li>
<li>Bodies: requests up to {max_request} bytes. A response over {max_response} bytes is sent, but not kept.</li>
</ul>
<h2>Problems</h2>
<dl>
{problems}
</dl>
</html>
"""


def policy_page(rules: Rules) -> HttpResponse:
    """The page as a response."""
    waits = rules.in_flight == "wait"
    left_out = CONFLICT if waits else STILL_RUNNING
    problems = "\n".join(
        f'<dt id="{problem.name}">{problem.status} {escape(problem.title)}</dt><dd>{escape(problem.advice)}</dd>'
        for problem in PROBLEMS
        if problem is not left_out
    )
    body = _PAGE.format(
        methods=escape(", ".join(rules.methods)),
        required="optional"
        if rules.required is False
        else "required"
        if rules.required is True
        else "required where the operation says so",
        form=escape(rules.key_form),
        bare=", or without the quotes" if rules.bare_keys else "",
        keep=rules.keep_seconds,
        in_flight=f"waits up to {rules.max_wait:g} seconds for its response" if waits else "is answered 409",
        released=escape(_released(rules)),
        max_request=rules.max_request,
        max_response=rules.max_response,
        problems=problems,
    ).encode()
    headers = [
        (b"Content-Type", b"text/html; charset=utf-8"),
        (b"Content-Length", b"%d" % len(body)),
        (b"Cache-Control", b"max-age=300"),  # seconds: a deployment that changes the rules is seen within minutes
    ]
    return HttpResponse(200, headers, body)


def _released(rules: Rules) -> str:
    """The statuses that free the key, as ranges: 401, 408, 500 to 599."""
    ranges: list[list[int]] = []
    for status in range(200, 600):
        if rules.releases(status):
            if ranges and ranges[-1][1] == status - 1:
                ranges[-1][1] = status
            else:
                ranges.append([status, status])
    return "status " + ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in ranges) if ranges else "no status"
