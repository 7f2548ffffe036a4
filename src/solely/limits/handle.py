"""The result of a limit, for threads and for asyncio."""

from __future__ import annotations

from typing import Self

from ..errors import Limited
from ..flow import Flow
from ..leases.context import AsyncRunFlow, RunFlow
from ..model import Allowance
from ..rules import stored_key
from . import flow as flows


class AdmissionBase:
    """Truthy if allowed; `hits` are in the window now, and the next one may be allowed in `retry_after` seconds."""

    def __init__(self, key: str, owner: str, allowance: Allowance) -> None:
        self.key = key
        self.allowed = allowance.allowed
        self.hits = allowance.hits
        self.retry_after = allowance.retry_after
        self._owner = owner

    def __bool__(self) -> bool:
        return self.allowed

    def or_raise(self) -> Self:
        """Returns itself if allowed; else raises Limited with the time until the next hit is allowed."""
        if not self.allowed:
            text = f"limit {self.key!r} is reached ({self.hits} hits); the next is allowed in {self.retry_after:.3f} s"
            raise Limited(text, key=self.key, left=self.retry_after)
        return self

    def _undoing(self) -> Flow[bool]:
        if not self.allowed or not self._owner:
            return False
        return (yield from flows.give_back(stored_key("limit", self.key), self._owner))

    def __repr__(self) -> str:
        answer = "allowed" if self.allowed else f"limited for {self.retry_after:.3f} s"
        return f"<{type(self).__name__} {self.key!r} {answer}, {self.hits} hits>"


class Admission(AdmissionBase):
    """The result of a limit, for threads."""

    def __init__(self, key: str, hit: tuple[str, Allowance], run: RunFlow) -> None:
        super().__init__(key, *hit)
        self._run = run

    def undo(self) -> bool:
        """Removes the hit, because the allowed work was not done; False if there is none."""
        return self._run(self._undoing())


class AsyncAdmission(AdmissionBase):
    """The result of a limit, for asyncio."""

    def __init__(self, key: str, hit: tuple[str, Allowance], run: AsyncRunFlow) -> None:
        super().__init__(key, *hit)
        self._run = run

    async def undo(self) -> bool:
        """Removes the hit, because the allowed work was not done; False if there is none."""
        return await self._run(self._undoing())
