"""The seam between the application and a forge (GitLab, GitHub): what each of them offers.

The reading half, here, says which jobs a request of a webhook asks for; the writing half is in `client`. A forge names
its ids and texts as GitLab does: `project_id`, `mr_iid`, `note_id`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from ..model import RepoJob
from ..settings import HookSecret

T = TypeVar("T")

Header = Callable[[str], str]  # the value of the header of this name, or ""


class WebhookDelivery(NamedTuple):
    """What a request of a webhook asks for: jobs, or none and the reason why it is ignored. `id` is the same if the
    forge repeats the delivery; "" if it does not say."""

    event: str
    id: str = ""
    jobs: Sequence[RepoJob] = ()
    ignored: str = ""


def decoder(shape: type[T]) -> Callable[[bytes], T]:
    """Decodes JSON of this shape; it raises msgspec.DecodeError for anything else, also for what is no UTF-8 or nested
    too deep."""
    decode = msgspec.json.Decoder(shape).decode

    def checked(body: bytes) -> T:
        try:
            return decode(body)
        except (UnicodeDecodeError, RecursionError) as error:
            raise msgspec.DecodeError(f"the JSON cannot be read: {error}") from None

    return checked


class WebhookReader(Protocol):
    """The reading half of a forge."""

    name: str  # as in RepoJob.forge
    how: str  # for the documents: which header carries which secret

    def plausible(self, header: Header) -> bool:
        """False if the request cannot be authentic, whatever its body is."""

    def speaks_for(self, header: Header, body: bytes) -> Sequence[HookSecret]:
        """The secrets that the request has, by a token or a signature, compared in constant time; none if it is not
        from the forge."""

    def read(self, header: Header, body: bytes) -> WebhookDelivery:
        """What the request asks for; msgspec.DecodeError if it is not what this forge sends."""


class UnreadItem(NamedTuple):
    """An item of a listing that cannot be read: it becomes a dead letter, and does not stop the others."""

    id: str
    item: dict[str, Any]
    error: str


Found = RepoJob | UnreadItem


class PolledSource(Protocol):
    """What a poller reads: a project of a forge, or the issues of Jira. Raises CallFailed, as outgoing calls do."""

    name: str  # also that of its watermark
    every: float  # seconds between two polls
    lookback: float  # seconds that each poll goes back behind the last one

    async def now(self) -> datetime:
        """The time of the other system, before anything is listed."""

    def found(self, since: datetime) -> AsyncIterator[Found]:
        """All jobs since then, some of them known."""
