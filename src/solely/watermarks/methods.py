"""Client methods of watermarks: the progress of some work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..leases.context import AsyncMethods, Methods

# Handles are imported by the methods that make them, so that a program pays only for the nouns that it uses.
if TYPE_CHECKING:
    from .flow import WatermarkInfo
    from .handle import AsyncWatermark, Lookback, Watermark


class Watermarks(Methods):
    """Watermarks, for threads."""

    def watermark(self, name: str, *, lookback: Lookback = 0) -> Watermark:
        """The watermark of this name; sends nothing yet. Its first `advance` creates it.

        Its values are aware datetimes, or 64-bit ints; `since()` returns the value minus `lookback`.
        """
        from .handle import Watermark

        return Watermark(self._context, self._run, name, lookback)

    def watermarks(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[WatermarkInfo]:
        """The watermarks whose name starts with `prefix` and follows `after`, in the order of names."""
        from .flow import watermarks

        return self._run(watermarks(prefix, after, limit))


class AsyncWatermarks(AsyncMethods):
    """Watermarks, for asyncio."""

    def watermark(self, name: str, *, lookback: Lookback = 0) -> AsyncWatermark:
        """The watermark of this name; sends nothing yet. Its first `advance` creates it.

        Its values are aware datetimes, or 64-bit ints; `since()` returns the value minus `lookback`.
        """
        from .handle import AsyncWatermark

        return AsyncWatermark(self._context, self._run, name, lookback)

    async def watermarks(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[WatermarkInfo]:
        """The watermarks whose name starts with `prefix` and follows `after`, in the order of names."""
        from .flow import watermarks

        return await self._run(watermarks(prefix, after, limit))
