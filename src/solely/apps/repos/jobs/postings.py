"""Postings: what a job says, in one comment. It is found again by its marker, and if two processes have posted it, the
comment with the lower id stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from ....kit import CallFailed
from ..forges.comments import CommentSite, PostedComment
from ..model import ISSUE
from .markers import hidden

if TYPE_CHECKING:
    from ..forges.client import ForgeClient
    from ..model import RepoJob
    from .jira_comments import JiraComments

log = structlog.get_logger("solely.repos")

MAX_COMMENT = 60_000  # characters: GitHub accepts 65,536, GitLab and Jira at least half of that


class Posting:
    """One comment, with its marker."""

    def __init__(self, site: CommentSite, marker: str) -> None:
        self._site, self._marker = site, marker

    async def is_posted(self) -> bool:
        """True if a comment has the marker. Of several of ours, all but the one with the lowest id are removed: whoever
        looks removes the same ones."""
        found = await self._site.find(self._marker)
        if len(found) > 1:
            await self._remove_later(found)
        return bool(found)

    async def post(self, text: str) -> None:
        """Adds the comment, and removes it again if another process was faster."""
        shown = text if len(text) <= MAX_COMMENT else f"{text[:MAX_COMMENT]}\n\n(shortened)"
        await self._site.add(f"{shown}\n\n{self._marker}")
        await self.is_posted()

    async def _remove_later(self, found: list[PostedComment]) -> None:
        """Only comments of ours: a person who quotes one of them quotes its marker as well."""
        try:
            user = await self._site.user()
            for each in [each for each in found if user and each.author == user][1:]:
                await self._site.remove(each.id)
                log.warning("duplicate_comment_removed", marker=self._marker, comment=each.id)
        except CallFailed as failure:
            if not failure.permanent:
                raise
            log.warning("duplicate_comment_left", marker=self._marker, error=str(failure))


def posting_of(job: RepoJob, marker: str, forge: ForgeClient, jira: JiraComments | None) -> Posting | None:
    """On the merge request, with a hidden marker; or on the issue in Jira, which hides nothing. None without a Jira."""
    if job.kind != ISSUE:
        return Posting(forge.comments(job), hidden(marker))
    return None if jira is None else Posting(jira.of(job.issue_key), f"(solely {marker})")
