"""The policy page: what a repeat of each request does, and every way to be refused, made from what is enforced."""

from __future__ import annotations

from html import escape

from starlette.responses import HTMLResponse

from ..integrations.idempotency import PROBLEMS, KeyProblem
from .keyed import KEEP, WAIT
from .problems import KINDS, POLICY_PATH, Kind
from .routes import PUBLIC, Call, Route

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>Idempotency policy</title>
<h1>Idempotency policy</h1>
<p>What happens when a request is sent again, because its answer was lost or its sender is not sure:</p>
<table>
<thead><tr><th scope="col">Request<th scope="col">Sent again</thead>
<tbody>
{repeats}
</tbody>
</table>
<p>Every GET is safe: it only looks.</p>
<p>Where the table says so, send <code>Idempotency-Key: "8e03978e-40d5-43e8-bc93-6894a57f9324"</code> (a fresh UUID of
your own, in double quotes) with a request, and the same one with every copy of it: it is done once, and every copy gets
the same answer, marked <code>Idempotent-Replayed: true</code>. Keys belong to the token that sent them and are kept for
{keep:g} seconds; a copy must have the same body; one that comes while the first is under way waits up to {wait:g}
seconds for it. After a refusal the key is free again.</p>
<h2>Problems</h2>
<p>Refusals are problem documents (RFC 9457). Where <code>Retry-After</code> is given, come again after so many
seconds, with the same request.</p>
<dl>
{problems}
</dl>
</html>
"""


async def policy(call: Call[None, None]) -> HTMLResponse:
    """The page."""
    repeats = "\n".join(
        f"<tr><td><code>{route.method} {escape(route.path)}</code><td>{escape(route.again)}"
        for route in call.service.routes
        if route.again
    )
    known: tuple[Kind | KeyProblem, ...] = (*KINDS, *PROBLEMS)
    told = "\n".join(
        f'<dt id="{kind.name}">{kind.status} {escape(kind.title)}</dt><dd>{escape(kind.advice)}</dd>' for kind in known
    )
    page = _PAGE.format(repeats=repeats, problems=told, keep=KEEP, wait=WAIT)
    return HTMLResponse(page, headers={"cache-control": "max-age=300"})


ROUTES = [
    Route("GET", POLICY_PATH, PUBLIC, policy, "What a repeat of each request does", media="text/html", tag="service")
]
