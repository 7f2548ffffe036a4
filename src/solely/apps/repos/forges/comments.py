"""The comments on one merge request or one issue, as jobs read and write them."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class PostedComment(NamedTuple):
    """A comment: later ones have higher ids. `author` is who wrote it, as the forge names its users."""

    id: int
    author: str


class CommentSite(Protocol):
    """Where comments are. Each call may raise CallFailed, as outgoing calls do."""

    async def find(self, marker: str) -> list[PostedComment]:
        """The comments that contain the marker, of whomever, in the order of their ids."""

    async def add(self, text: str) -> None:
        """Adds a comment."""

    async def remove(self, id: int) -> None:
        """Removes a comment."""

    async def user(self) -> str:
        """Our own name, as in `PostedComment.author`; "" if the forge does not say."""
