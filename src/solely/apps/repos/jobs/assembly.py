"""The parts that perform jobs, assembled from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .... import AsyncClient
from ....kit import Caller, Journal, Metrics, OutgoingSettings, Queries
from ..forges.client import ForgeAccess
from ..forges.github.client import GitHubClient
from ..forges.gitlab.client import GitLabClient
from ..settings import ReposSettings
from .failures import FailureNotices
from .handlers import JobHandlers
from .jira_comments import JiraComments
from .performer import JobPerformer, Report
from .records import JobRecords
from .results import JobResults
from .settings import JobSettings


class JobParts(NamedTuple):
    """What performs jobs, and what knows of them."""

    forges: Mapping[str, ForgeAccess]
    records: JobRecords
    results: JobResults
    performer: JobPerformer
    notices: FailureNotices


class JobServices(NamedTuple):
    """What the parts use of the application."""

    once: AsyncClient
    journal: Journal
    queries: Queries
    metrics: Metrics
    report: Report


def assemble(services: JobServices, settings: ReposSettings, callers: Mapping[str, Caller]) -> JobParts:
    """The parts for the forges and the Jira that are set."""
    return assembled(services, settings.jobs, _forges(settings, callers), _jira(settings, callers))


def assembled(
    services: JobServices, settings: JobSettings, forges: Mapping[str, ForgeAccess], jira: JiraComments | None = None
) -> JobParts:
    """The parts for these forges."""
    once, results = services.once, JobResults(services.once)
    records = JobRecords(services.journal, services.queries)
    handlers = JobHandlers(once, settings, results, jira)
    notices = FailureNotices(once, settings, forges, jira, results)
    known = (records, results, services.metrics, notices, services.report)
    return JobParts(forges, records, results, JobPerformer(once, settings, forges, handlers, *known), notices)


def _forges(settings: ReposSettings, callers: Mapping[str, Caller]) -> dict[str, ForgeAccess]:
    found: dict[str, ForgeAccess] = {}
    if settings.gitlab is not None:
        gitlab = settings.gitlab
        client = GitLabClient(callers["gitlab"], gitlab.url, gitlab.token)
        found["gitlab"] = ForgeAccess(client, _trust(gitlab.outgoing))
    if settings.github is not None:
        github = settings.github
        found["github"] = ForgeAccess(
            GitHubClient(callers["github"], github.url, github.token), _trust(github.outgoing)
        )
    return found


def _jira(settings: ReposSettings, callers: Mapping[str, Caller]) -> JiraComments | None:
    jira = settings.jira
    return None if jira is None else JiraComments(callers["jira"], jira.url, jira.kind, jira.user, jira.token)


def _trust(outgoing: OutgoingSettings) -> dict[str, str]:
    """How git checks the certificate of the forge: as calls of its API do."""
    trusted = {"GIT_SSL_CAINFO": outgoing.ca_file} if outgoing.ca_file else {}
    return trusted if outgoing.verify else {**trusted, "GIT_SSL_NO_VERIFY": "1"}
