"""Watermarks: how far the work has come."""

from __future__ import annotations

from ..leases.context import AsyncMethods, Methods
from .handle import AsyncWatermark, Lookback, Watermark


class Watermarks(Methods):
    """Watermarks, for threads."""

    def watermark(self, name: str, *, lookback: Lookback = 0) -> Watermark:
        """The watermark of this name, made by its first `advance`; nothing is asked yet.

        Its values are aware times, or whole numbers of 64 bits; `lookback` is how far `since()` looks back behind it.
        """
        return Watermark(self._context, self._run, name, lookback)


class AsyncWatermarks(AsyncMethods):
    """Watermarks, awaited."""

    def watermark(self, name: str, *, lookback: Lookback = 0) -> AsyncWatermark:
        """The watermark of this name, made by its first `advance`; nothing is asked yet.

        Its values are aware times, or whole numbers of 64 bits; `lookback` is how far `since()` looks back behind it.
        """
        return AsyncWatermark(self._context, self._run, name, lookback)
