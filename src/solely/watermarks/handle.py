"""Watermarks: the progress of some work, kept in the store, so that a restart neither repeats nor skips any."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from ..errors import InvalidInput
from ..events import Rewound
from ..flow import Flow
from ..formats import WatermarkValue as Value
from ..leases.context import AsyncRunFlow, Context, RunFlow
from ..logs import get_logger
from ..rules import stored_key
from . import flow as watermark
from .flow import Rewinding

log = get_logger()

Lookback = int | float | timedelta


class WatermarkBase:
    """A watermark, the same for threads and asyncio."""

    def __init__(self, context: Context, name: str, lookback: Lookback) -> None:
        self.name = name
        self.lookback = _checked(lookback)
        self._key = stored_key("watermark", name)
        self._context = context

    def _advancing(self, value: Value) -> Flow[Value]:
        return self._context.or_proceed(self._key, "watermark", watermark.advance(self._key, value), lambda: value)

    def _since(self, value: Value | None) -> Value | None:
        return None if value is None else _less(value, self.lookback)

    def _rewinding(self, to: Value, reason: Any) -> Flow[Value]:
        if not (isinstance(reason, str) and reason.strip()):
            raise InvalidInput(f"a rewind needs a reason for the log (who wants it, and why), not {reason!r:.80}")
        return self._reported(watermark.rewind(self._key, to, reason), reason)

    def _reported(self, flow: Flow[Rewinding], reason: str) -> Flow[Value]:
        before, now = yield from flow
        if before != now:
            facts = {"key": self._key, "before": str(before), "to": str(now), "reason": reason}
            text = "watermark_rewound: %(key)r was rewound from %(before)s to %(to)s: %(reason)s"
            log.warning(text, facts, extra=facts)
            if self._context.hook is not None:
                self._context.hook(Rewound(self._key, str(before), str(now), reason))
        return now

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class Watermark(WatermarkBase):
    """The progress of the work under this name, for threads."""

    def __init__(self, context: Context, run: RunFlow, name: str, lookback: Lookback) -> None:
        super().__init__(context, name, lookback)
        self._run = run

    def advance(self, value: Value) -> Value:
        """Advances to `value` and returns the new value: the greater of the given and the stored one.

        Raises InvalidInput, with both, if one is a time and the other a number.
        """
        return self._run(self._advancing(value))

    def read(self) -> Value | None:
        """The current value; None if there is none yet."""
        return self._run(watermark.read(self._key))

    def since(self) -> Value | None:
        """Where to continue: the current value minus the lookback; None if there is none yet."""
        return self._since(self.read())

    def rewind(self, to: Value, *, reason: str) -> Value:
        """Goes back to `to`, logs that with the reason and reports it to the hooks; returns the new value."""
        return self._run(self._rewinding(to, reason))


class AsyncWatermark(WatermarkBase):
    """The progress of the work under this name, for asyncio."""

    def __init__(self, context: Context, run: AsyncRunFlow, name: str, lookback: Lookback) -> None:
        super().__init__(context, name, lookback)
        self._run = run

    async def advance(self, value: Value) -> Value:
        """Advances to `value` and returns the new value: the greater of the given and the stored one.

        Raises InvalidInput, with both, if one is a time and the other a number.
        """
        return await self._run(self._advancing(value))

    async def read(self) -> Value | None:
        """The current value; None if there is none yet."""
        return await self._run(watermark.read(self._key))

    async def since(self) -> Value | None:
        """Where to continue: the current value minus the lookback; None if there is none yet."""
        return self._since(await self.read())

    async def rewind(self, to: Value, *, reason: str) -> Value:
        """Goes back to `to`, logs that with the reason and reports it to the hooks; returns the new value."""
        return await self._run(self._rewinding(to, reason))


def _checked(lookback: Any) -> Lookback:
    length = lookback.total_seconds() if isinstance(lookback, timedelta) else lookback
    if isinstance(length, bool) or not isinstance(length, int | float) or not 0 <= length < math.inf:
        wanted = "seconds or a timedelta for times, an int for numbers"
        raise InvalidInput(f"lookback must be 0 or more ({wanted}), not {lookback!r:.80}")
    return lookback  # type: ignore[no-any-return]


def _less(value: Value, lookback: Lookback) -> Value:
    if isinstance(value, datetime):
        try:
            return value - (lookback if isinstance(lookback, timedelta) else timedelta(seconds=lookback))
        except OverflowError:
            return datetime.min.replace(tzinfo=UTC)
    if not isinstance(lookback, int):
        raise InvalidInput(f"this watermark is a number ({value}); its lookback must be an int, not {lookback!r}")
    return value - lookback
