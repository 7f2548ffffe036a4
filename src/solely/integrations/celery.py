"""Celery: unique tasks. A task is queued or running once at a time, from `delay()` to the end of its execution."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ..client import Client
from ..errors import Busy, InvalidInput, missing_extra
from ..functions import finished, plain_function
from ..leases.lease import Lease
from ..logs import get_logger
from ..model import Released
from ..rules import Seconds, ttl_seconds

try:
    from celery import Task, states
    from celery.exceptions import Ignore
    from celery.result import EagerResult
    from celery.utils import uuid
    from celery.utils.time import maybe_make_aware
except ImportError as error:
    raise missing_extra("solely.integrations.celery", error.name, "celery") from error

log = get_logger()
TOKEN = "solely_token"  # the header that carries the lease from the sender to the worker
LEASE = "solely_lease"  # where a running task's request has its lease
Key = Callable[..., str]


def unique(once: Client, *, key: Key | None = None, queued_for: Seconds = 3600.0, ttl: Seconds = 60.0) -> type[Task]:
    """A base class for tasks that are queued or running once at a time: `@app.task(base=unique(once))`.

    A task that is sent meanwhile is not queued; the result of `delay()` then has the state IGNORED and names the
    holder. `key` computes the key from the task's arguments; by default it is the task's name and all its arguments. A
    message that no worker took within `queued_for` seconds (after its eta) no longer blocks others. While the task
    runs, `self.lease` holds the key, for `ttl` seconds at a time, so a killed worker blocks others no longer than
    that; a task that runs longer than its lease fails with LeaseLost.
    """
    if not isinstance(once, Client):
        raise InvalidInput(f"unique tasks need a solely.Client, not {once!r:.80}")
    if key is not None:
        plain_function("key", key)
    queued, running = ttl_seconds(queued_for, "queued_for"), ttl_seconds(ttl)

    class Unique(Task):  # type: ignore[misc]
        abstract = True

        def __init_subclass__(cls, **options: Any) -> None:
            super().__init_subclass__(**options)
            if "run" in cls.__dict__:  # a task: a worker of Celery awaits nothing
                plain_function("the task", cls.run)

        @property
        def lease(self) -> Lease | None:
            """The lease of the running task, with the `fence` for its writes. None outside of a task."""
            lease: Lease | None = self.request.get(LEASE)
            return lease

        def apply_async(self, args: Any = None, kwargs: Any = None, task_id: str | None = None, **options: Any) -> Any:
            task_id = task_id or uuid()
            if self.lease is not None and self.request.id == task_id:
                self.lease.release()  # a retry: from here on it is queued again
            name = _name(self, key, args or (), kwargs or {})
            until_taken = queued + _delay(self, options)
            try:
                lease = once.lock(name, ttl=until_taken, wait=0, renew=False, purpose=f"queued task {task_id}")
            except Busy as refusal:
                _not_unique(name, refusal)
                return EagerResult(task_id, str(refusal), states.IGNORED, name=self.name)
            headers = dict(options.pop("headers", None) or {})
            if not lease.unguarded:
                headers[TOKEN] = lease.token
            with lease:  # releases the key if sending fails
                sent = super().apply_async(args, kwargs, task_id=task_id, headers=headers, **options)
                if not lease.unguarded:
                    lease.hand_over()
            return sent

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            if self.request.called_directly:
                return super().__call__(*args, **kwargs)
            name = _name(self, key, args, kwargs)
            _no_longer_queued(once, self.request)
            try:
                lease = once.lock(name, ttl=running, wait=0, purpose=f"running task {self.request.id}")
            except Busy as refusal:
                _not_unique(name, refusal)
                raise Ignore(str(refusal)) from None
            setattr(self.request, LEASE, lease)
            with lease:
                return finished("the task", self.run(*args, **kwargs))

    return Unique


def _no_longer_queued(once: Client, request: Any) -> None:
    """Releases the key that came with the message, whose ttl is `queued_for`. If another message, or another delivery
    of this one, takes the key first, that one runs and we do not."""
    token = request.get(TOKEN) or (request.headers or {}).get(TOKEN)
    if token and once.release(token) is not Released.RELEASED:
        facts = {"task": request.id}
        text = "task_was_queued_too_long: task %(task)r was in its queue for longer than queued_for"
        log.info(text, facts, extra=facts)


def _not_unique(key: str, refusal: Busy) -> None:
    facts = {"key": key, "error": str(refusal)}
    log.info("task_not_unique: the task %(key)r is queued or runs already: %(error)s", facts, extra=facts)


def _name(task: Any, key: Key | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The key of this call: the same for positional and named arguments."""
    if key is not None:
        return key(*args, **kwargs)
    given = inspect.signature(task.run).bind(*args, **kwargs)
    given.apply_defaults()
    text = json.dumps(given.arguments, sort_keys=True, default=repr)
    return f"celery:{task.name}:{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _delay(task: Any, options: Mapping[str, Any]) -> float:
    """Seconds until a worker may take the message."""
    eta = options.get("eta")
    if isinstance(eta, datetime):
        return max(0.0, float((maybe_make_aware(eta) - task.app.now()).total_seconds()))
    return max(0.0, float(options.get("countdown") or 0.0))
