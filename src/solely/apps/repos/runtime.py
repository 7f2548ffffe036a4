"""The running application: its parts, how they are assembled, started and stopped. Handlers are built on this."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from ... import AsyncDeadLetters, QueueWorker
from ...kit import HOUR, Application, Caller, Job, Journal
from .forges.commands import CommandRule
from .forges.forge import PolledSource
from .forges.gitlab.listing import GitLabListing
from .intake import JobIntake
from .jira import JiraListing
from .jobs.assembly import JobParts, JobServices, assemble
from .jobs.performer import sweep_folders
from .jobs.settings import JobSettings
from .model import FAILURES, JOBS, UNREAD, RepoJob
from .polling import Pollers
from .settings import ReposSettings

_LOST = 60.0  # seconds between two looks for jobs whose processes died too often: some minutes are soon enough


class ReposRuntime(Application[ReposSettings]):
    """The application of one worker, without its routes."""

    received: Journal  # of what was received, for people
    intake: JobIntake
    unread: AsyncDeadLetters  # what a webhook sent or a poll listed, and could not be read
    callers: dict[str, Caller]  # gitlab, github and jira, as far as they are set
    pollers: Pollers
    work: JobParts
    in_demo = False  # jobs of the demonstration are performed, without any command in the settings

    async def start(self) -> None:
        """Assembles the parts."""
        keep, metrics = self.settings.retention, self.service.metrics
        order = ("key", "origin", "outcome")
        self.received = self.journal("record_received", order=order, forget="forget_received", keep=keep)
        self.intake = JobIntake(self.once, self.queue(JOBS), metrics, self.received)
        self.unread = self.once.dead_letters(self.own(UNREAD))
        systems = {"gitlab": self.settings.gitlab, "github": self.settings.github, "jira": self.settings.jira}
        self.callers = {name: self.caller(name, each.outgoing) for name, each in systems.items() if each is not None}
        self.pollers = Pollers(self.once, self.intake, self.unread, metrics, self._sources(), self._announce_poll)
        journal = self.journal("record_job", order=("id",), forget="forget_jobs", keep=keep)
        self.job_services = JobServices(self.once, journal, self.queries, metrics, self._announce)
        self.work = assemble(self.job_services, self.settings, self.callers)

    def jobs(self) -> Sequence[Job]:
        """Polls what the settings name, records what was lost, and removes what has expired."""
        lost = Job("lost jobs", _LOST, self.work.performer.fail_lost)
        return (*self.pollers.jobs(), lost, Job("expired", float(HOUR), self._sweep))

    def workers(self) -> Sequence[QueueWorker]:
        """The workers of the jobs, if there are commands for them, and of comments that they failed."""
        return self.workers_of(self.settings.jobs, self.work) if self.settings.jobs.any else []

    def workers_of(self, given: JobSettings, work: JobParts) -> list[QueueWorker]:
        """The workers of these parts."""
        options: Any = {"ttl": given.ttl, "at_once": given.at_once, "max_attempts": given.max_attempts}
        return [self.worker(JOBS, work.performer.perform, **options), self.worker(FAILURES, work.notices.post)]

    async def _sweep(self) -> None:
        await self.work.results.sweep()
        await asyncio.to_thread(sweep_folders, self.settings.jobs.folder)

    async def _announce(self, job: RepoJob, error: str) -> None:
        """Raises the alert of a job that failed for good; resolves it if there is no error."""
        await self.announce(
            "Job failed",
            fingerprint=job.key,
            summary=f"{job.key}: {error or 'it has succeeded'}",
            labels={"kind": job.kind, "project": job.project_path},
            status="firing" if error else "resolved",
        )

    async def _announce_poll(self, source: str, error: str) -> None:
        summary = f"{source} cannot be polled: {error}" if error else f"{source} is polled again"
        status: Literal["firing", "resolved"] = "firing" if error else "resolved"
        await self.announce("Poll failed", fingerprint=f"poll/{source}", summary=summary, status=status)

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
