"""Alerts over HTTP: how many posts per second two workers of the service accept.

`solely serve` runs with 2 workers and the log as publisher; each sender has a bearer token and waits for its response.
**One post in ten must be published** (see `traffic`): each fingerprint is posted ten times within a thousand posts,
which is half a second at 2,000 posts a second; quiet windows are longer than that. The policy is the default for
critical alerts, so each published alert is a reservation with a limit, an item in the outbox, a line in the log and a
row in the history. The worker itself answers a repeat if it read that fingerprint from the store within the last fifth
of a second, else the store does.
"""

import hashlib
import json
import tempfile
from functools import partial
from pathlib import Path

from .alerts import ALERT, SERVERS, data_url
from .harness import Case, Effort, Figures, Goal, Place, interleave, print_medians
from .traffic import SUSTAINED, RepeatedRequests, busy, senders, served
from .workers import Loop

TOKEN = "token-of-the-benchmark"


def _body(number: int) -> bytes:
    return json.dumps({**ALERT, "fingerprint": f"sustained-{number}"}).encode()


def _posts() -> RepeatedRequests:
    headers = {"authorization": f"Bearer {TOKEN}"}
    outcome = ("published", ("suppressed",))
    return RepeatedRequests("/api/alerts", lambda: headers, _body, lambda answer: str(answer["outcome"]), *outcome)


def _sustained(store: str, place: Place, effort: Effort) -> Figures:
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    with tempfile.TemporaryDirectory() as name, SERVERS[store](place) as server, Loop() as loop:
        folder = Path(name)
        flags = ("--url", server.url, "--data-url", data_url(server, folder), "--set", f"tokens=sender:write:{digest}")
        with served(folder, *flags) as (port, workers):
            posts, opened = _posts(), loop.enter(senders(port))
            loop.run(posts.prime(opened[0]))
            seconds = effort.seconds * SUSTAINED
            with busy(workers):
                rates = interleave({"posts": lambda: loop.run(posts.rate(opened, seconds))}, effort.repetitions)
    print_medians(rates)
    return {f"alerts.{store}.per_s": rates["posts"]}


_AGAINST = "posts per second, 1 in 10 published; 2 workers, one on either core"
CASES = [
    Case([Goal(f"alerts.{store}.per_s", least, _AGAINST)], Place.APART, partial(_sustained, store))
    for store, least in (("postgres", 1_000.0), ("redis", 2_000.0))
]
