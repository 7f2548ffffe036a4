"""Every store replies as the memory model does, to any ops in any order."""

from collections.abc import Sequence

import pytest

from solely.errors import StoreError
from solely.ops import Acquire, Op, Release, Reply
from solely.stores import open_store
from solely.stores.memory import Memory, MemoryStore
from solely.testing.clock import ManualClock
from solely.testing.machine import run_machine
from tests.conftest import PATIENT


@pytest.mark.timeout(600)  # up to 6,000 steps on two stores, on a machine that may be busy
def test_the_store_answers_as_the_model(store_url: str, model_examples: int) -> None:
    clock = ManualClock()
    store = open_store(store_url, clock=clock, timeout=PATIENT)
    try:
        run_machine(store, clock, examples=model_examples)
    finally:
        store.close()


class Forgetful(MemoryStore):
    """A store with a planted bug: its releases revoke nothing."""

    def perform(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
        return super().perform([op._replace(revoke=False) if isinstance(op, Release) else op for op in ops])


class Generous(MemoryStore):
    """A store with a planted bug: a hold lasts two milliseconds longer than its ttl."""

    def perform(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
        return super().perform([op._replace(ttl=op.ttl + 0.002) if isinstance(op, Acquire) else op for op in ops])


@pytest.mark.parametrize("broken", [Forgetful, Generous])
def test_the_machine_finds_a_planted_bug(broken: type[MemoryStore]) -> None:
    clock = ManualClock()
    with pytest.raises(AssertionError, match="the model says"):
        run_machine(broken(Memory(clock=clock)), clock, examples=100, shrink=False)
