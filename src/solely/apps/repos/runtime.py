"""The running application: its parts, how they are assembled, started and stopped. Handlers are built on this."""

from __future__ import annotations

from ...kit import Application, Caller, Journal
from .intake import JobIntake
from .model import JOBS
from .settings import ReposSettings


class ReposRuntime(Application[ReposSettings]):
    """The application of one worker, without its routes."""

    received: Journal  # of what was received, for people
    intake: JobIntake
    callers: dict[str, Caller]  # gitlab, github and jira, as far as they are set

    async def start(self) -> None:
        """Assembles the parts."""
        keep = self.settings.retention
        order = ("key", "origin", "outcome")
        self.received = self.journal("record_received", order=order, forget="forget_received", keep=keep)
        self.intake = JobIntake(self.once, self.queue(JOBS), self.service.metrics, self.received)
        systems = {"gitlab": self.settings.gitlab, "github": self.settings.github, "jira": self.settings.jira}
        self.callers = {name: self.caller(name, each.outgoing) for name, each in systems.items() if each is not None}
