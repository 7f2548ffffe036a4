"""Children: a task triggers another one and waits for its result, without holding its lease or its slot meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from .... import LeaseLost, PermanentFailure
from ..model import COMPLETED, ENDED

if TYPE_CHECKING:
    from ....kit.commands import ServiceClient

# Performs a request, repeated while the service fails; None if the lease of the run has ended meanwhile.
Insist = Callable[[Callable[[], Any]], Any]


class ChildFailed(PermanentFailure):
    """The child was FAILED or CANCELED. A retry of the parent would get the same result, so it fails for good unless
    its task catches this."""

    def __init__(self, id: str, state: str, error: str) -> None:
        super().__init__(f"the child run {id} is {state}" + (f": {error}" if error else ""))
        self.id, self.state, self.error = id, state, error


class WaitsForChild(BaseException):
    """Ends the attempt of a task whose child has not ended. No error: a task must not catch it."""

    def __init__(self, child: str) -> None:
        super().__init__(child)
        self.child = child


class _Triggered(msgspec.Struct, rename="camel"):
    id: str
    is_cached: bool


class _Child(msgspec.Struct):
    status: str
    output: Any = None
    error: dict[str, Any] | None = None


class Children:
    """The children of one run."""

    def __init__(self, service: ServiceClient, parent: str, insist: Insist) -> None:
        self._service, self._parent, self._insist = service, parent, insist
        self._count = 0

    def result(self, task: str, payload: object, key: str, tags: Sequence[str], max_attempts: int | None) -> Any:
        """The output of the child of this key; raises ChildFailed, or WaitsForChild if it has not ended."""
        self._count += 1
        own = {"parentRunId": self._parent, "resumeParentOnCompletion": True}
        options = {"idempotencyKey": f"{self._parent}:{key or f'{task}/{self._count}'}", "tags": list(tags), **own}
        if max_attempts is not None:
            options["maxAttempts"] = max_attempts
        body = {"payload": msgspec.to_builtins(payload), "options": options}
        path = f"/api/v1/tasks/{quote(task, safe='')}/trigger"
        made: _Triggered = self._ask(lambda: self._service.post(path, body, _Triggered))
        if made.is_cached:
            child: _Child = self._ask(lambda: self._service.get(f"/api/v1/runs/{made.id}", _Child))
            if child.status == COMPLETED:
                return child.output
            if child.status in ENDED:
                raise ChildFailed(made.id, child.status, str((child.error or {}).get("message", "")))
        raise WaitsForChild(made.id)

    def _ask(self, ask: Callable[[], Any]) -> Any:
        answer = self._insist(ask)
        if answer is None:
            raise LeaseLost(f"run {self._parent} is no longer leased to this worker", key=self._parent)
        return answer
