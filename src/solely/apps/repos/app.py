"""The application as the service mounts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ...kit import Figure, Route
from .figures import FIGURES
from .runtime import ReposRuntime


class ReposApp(ReposRuntime):
    """Each job of GitLab, GitHub and Jira once, one at a time in each repository."""

    name = "repos"
    title = "Repositories"
    about = "Each review, command and issue is performed once, and one at a time in each repository."
    figures: ClassVar[tuple[Figure, ...]] = FIGURES
    secrets: ClassVar[tuple[str, ...]] = ("gitlab", "github", "jira")

    def routes(self) -> Sequence[Route]:
        """The endpoints of webhooks."""
        return ()
