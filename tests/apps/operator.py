"""A running service with one application, as senders and operators call it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2

from tests.service.serving import LINES, TOKENS, Running, bearer, running

BECAUSE = "a test wants it"  # the reason of an admin action


class Operator:
    """Calls the service, as an admin unless another scope is given."""

    def __init__(self, service: Running) -> None:
        self.service = service

    def post(self, path: str, body: dict[str, Any], scope: str = "admin") -> httpx2.Response:
        return self.service.post(path, body, headers=bearer(TOKENS[scope]))

    def get(self, path: str, scope: str = "admin", **query: Any) -> httpx2.Response:
        return self.service.get(path, params=query or None, headers=bearer(TOKENS[scope]))

    def ask(self, path: str, **query: Any) -> Any:
        """What is answered to somebody who may only look."""
        answer = self.get(path, "read", **query)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def operating(app: str, settings: Mapping[str, Any], **service: Any) -> Iterator[Operator]:
    """A service of its own with this application, on the memory store unless `service` has another URL."""
    given: dict[str, Any] = {"tokens": LINES, "apps": (app,), app: dict(settings), **service}
    with running(**given) as it:
        yield Operator(it)
