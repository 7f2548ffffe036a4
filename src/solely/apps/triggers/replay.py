"""Replays: a run is triggered once more, under a new key."""

from __future__ import annotations

import secrets

from ... import InvalidInput
from .changes import Runs
from .model import TaskRun, new_run_id, now, stored_key_of
from .pipeline import Pipeline, Triggered


class Replays:
    """Triggers runs again, through the same pipeline as any other trigger."""

    def __init__(self, runs: Runs, pipeline: Pipeline, key_ttl: float) -> None:
        self._runs, self._pipeline, self._key_ttl = runs, pipeline, key_ttl

    async def replay(self, environment: str, id: str, key: str = "") -> Triggered | None:
        """The new run of this key, which has the payload, tags, metadata and options of the old one; None if there is
        no such run. Without a key it gets one of its own. Raises InvalidInput if the key is the old run's."""
        old = await self._runs.find(environment, id)
        if old is None:
            return None
        stored = stored_key_of(key or replay_key(old.id))
        if stored == old.idempotency_key:
            raise InvalidInput(f"run {old.id} itself has the key {key!r:.80}; a replay needs another one")
        return await self._pipeline.trigger(self._again(old, stored))

    def _again(self, old: TaskRun, key: str) -> TaskRun:
        at = now()
        return TaskRun(
            id=new_run_id(old.environment, old.task, key),
            environment=old.environment,
            task=old.task,
            idempotency_key=key,
            key_expires_at=at + self._key_ttl,
            payload=old.payload,
            payload_digest=old.payload_digest,
            tags=old.tags,
            metadata=old.metadata,
            options=old.options,
            created_at=at,
            updated_at=at,
            available_at=at,
            max_attempts=old.max_attempts,
            frees_key=old.frees_key,
            replay_of=old.id,
        )


def replay_key(id: str) -> str:
    """A fresh key for a replay of this run."""
    return f"replay:{id}:{secrets.token_hex(4)}"
