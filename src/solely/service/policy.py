"""The policy page: what a repeat of each request does, and all problems, generated from what is enforced."""

from __future__ import annotations

from html import escape

from starlette.responses import HTMLResponse

from ..integrations.idempotency import PROBLEMS
from .idempotency import KEEP, WAIT
from .problems import KINDS, POLICY_PATH
from .routes import PUBLIC, Call, Route

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>Idempotency policy</title>
<h1>Idempotency policy</h1>
<p>What happens when a request is sent again, because its response was lost or its sender is not sure:</p>
<table>
<thead><tr><th scope="col">Request<th scope="col">Sent again</thead>
<tbody>
{repeats}
</tbody>
</table>
<p>Every GET is safe: it changes nothing.</p>
<p>Where the table says so, send <code>Idempotency-Key: "8e03978e-40d5-43e8-bc93-6894a57f9324"</code> (a fresh UUID of
your own, in double quotes) with a request, and the same one with every copy of it: it is performed once, and every copy
gets the same response, marked <code>Idempotent-Replayed: true</code>. Keys belong to the token that sent them and are
kept for {keep:g} seconds; a copy must have the same body; a copy that arrives while the first is in flight waits up to
{wait:g} seconds for it. After a refusal the key is free again.</p>
<h2>Problems</h2>
<p>Errors are problem documents (RFC 9457). Where <code>Retry-After</code> is given, send the same request again after
so many seconds.</p>
<dl>
{problems}
</dl>
</html>
"""


async def policy(call: Call[None, None]) -> HTMLResponse:
    """What a repeat of each request does, and all problems."""
    repeats = "\n".join(
        f"<tr><td><code>{route.method} {escape(route.path)}</code><td>{escape(route.again)}"
        for route in call.routes
        if route.again
    )
    problems = "\n".join(
        f'<dt id="{kind.name}">{kind.status} {escape(kind.title)}</dt><dd>{escape(kind.advice)}</dd>'
        for kind in (*KINDS, *PROBLEMS)
    )
    page = _PAGE.format(repeats=repeats, problems=problems, keep=KEEP, wait=WAIT)
    return HTMLResponse(page, headers={"cache-control": "max-age=300"})


ROUTES = [Route("GET", POLICY_PATH, PUBLIC, policy, media="text/html", tag="service")]
