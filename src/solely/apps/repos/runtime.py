"""The running application: its parts, how they are assembled, started and stopped. Handlers are built on this."""

from __future__ import annotations

from collections.abc import Sequence

from ... import AsyncDeadLetters
from ...kit import Application, Caller, Job, Journal
from .forges.commands import CommandRule
from .forges.forge import PolledSource
from .forges.gitlab.listing import GitLabListing
from .intake import JobIntake
from .jira import JiraListing
from .model import JOBS, UNREAD
from .polling import Pollers
from .settings import ReposSettings


class ReposRuntime(Application[ReposSettings]):
    """The application of one worker, without its routes."""

    received: Journal  # of what was received, for people
    intake: JobIntake
    unread: AsyncDeadLetters  # what a webhook sent or a poll listed, and could not be read
    callers: dict[str, Caller]  # gitlab, github and jira, as far as they are set
    pollers: Pollers

    async def start(self) -> None:
        """Assembles the parts."""
        keep, metrics = self.settings.retention, self.service.metrics
        order = ("key", "origin", "outcome")
        self.received = self.journal("record_received", order=order, forget="forget_received", keep=keep)
        self.intake = JobIntake(self.once, self.queue(JOBS), metrics, self.received)
        self.unread = self.once.dead_letters(self.own(UNREAD))
        systems = {"gitlab": self.settings.gitlab, "github": self.settings.github, "jira": self.settings.jira}
        self.callers = {name: self.caller(name, each.outgoing) for name, each in systems.items() if each is not None}
        self.pollers = Pollers(self.once, self.intake, self.unread, metrics, self._sources())

    def jobs(self) -> Sequence[Job]:
        """Polls what the settings name."""
        return self.pollers.jobs()

    def _sources(self) -> list[PolledSource]:
        settings = self.settings
        rule = CommandRule(settings.command, frozenset(settings.authors))
        found: list[PolledSource] = []
        if settings.gitlab is not None:
            caller = self.callers["gitlab"]
            found += [GitLabListing(caller, settings.gitlab, each, rule) for each in settings.gitlab.projects]
        if settings.jira is not None and settings.jira.projects:
            found.append(JiraListing(self.callers["jira"], settings.jira))
        return found
