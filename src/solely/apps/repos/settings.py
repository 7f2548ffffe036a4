"""The settings of the application: the section [repos]. Invalid settings raise `InvalidInput` when they are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from ... import InvalidInput
from ...kit import DAY, OutgoingSettings, check_url, signing_key
from .jobs.settings import JobSettings

# Seconds. GitLab updates the time of a merge request at most once a minute, so that a note may be up to a minute newer
# than its merge request says; the default adds as much again for clocks and slow transactions.
Lookback = Annotated[float, msgspec.Meta(ge=60.0, le=float(DAY), description="seconds, from 60 on")]
PollEvery = Annotated[float, msgspec.Meta(ge=1.0, le=float(DAY), description="seconds")]
_LOOKBACK = 120.0
_POLL = 60.0  # seconds: a webhook is faster; the poller finds what no webhook delivered
_PAGE = 16 << 20  # bytes: a page of 100 merge requests or issues with long descriptions


class HookSecret(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A secret that speaks for these projects only: ids, paths, or all below a group as `group/`. Without any, which is
    what a plain text means, it speaks for every project."""

    secret: str
    projects: tuple[int | str, ...] = ()

    def covers(self, project_id: int, path: str) -> bool:
        """True if it may report events of this project."""
        return not self.projects or any(_is_of(each, project_id, path.casefold()) for each in self.projects)


Secrets = Annotated[tuple[str | HookSecret, ...], msgspec.Meta(max_length=32)]  # each is compared with each request


class GitLabSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GitLab. `token` is for its API and for git; `webhook_tokens` and `signing_tokens` are what webhooks may send:
    several, so that they can be rotated, and each for all projects or for some. `projects` (ids or paths) are
    polled."""

    url: str = "https://gitlab.com"
    token: str = ""
    webhook_tokens: Secrets = ()
    signing_tokens: Secrets = ()
    projects: tuple[int | str, ...] = ()
    poll_every: PollEvery = _POLL
    lookback: Lookback = _LOOKBACK
    outgoing: OutgoingSettings = OutgoingSettings(max_response=_PAGE)

    def __post_init__(self) -> None:
        check_url("gitlab: url", self.url)
        for each in hook_secrets(self.signing_tokens):
            signing_key("gitlab: signing_tokens:", each.secret)
        _check_given("gitlab: webhook_tokens", self.webhook_tokens)
        if self.projects and not self.token:
            raise InvalidInput("gitlab: projects are polled with a token; give `token`, or no projects")


class GitHubSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GitHub. `token` is for its API and for git; `webhook_secrets` sign what webhooks send."""

    url: str = "https://api.github.com"
    token: str = ""
    webhook_secrets: Secrets = ()
    outgoing: OutgoingSettings = OutgoingSettings(max_response=_PAGE)

    def __post_init__(self) -> None:
        check_url("github: url", self.url)
        _check_given("github: webhook_secrets", self.webhook_secrets)


class JiraTarget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The repository in which the issues of a Jira project are worked on."""

    git_http_url: str
    project_id: int
    project_path: str
    target_branch: str = "main"
    forge: Literal["gitlab", "github"] = "gitlab"

    def __post_init__(self) -> None:
        check_url("jira: projects: git_http_url", self.git_http_url)


class JiraSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jira. Cloud takes the mail address of the user with an API token; Data Center takes a personal access token and
    no user. `jql` selects the issues to work on; `projects` has the repository of each Jira project."""

    url: str
    kind: Literal["cloud", "data_center"] = "cloud"
    user: str = ""
    token: str = ""
    jql: str = "labels = agent AND statusCategory != Done"
    projects: dict[str, JiraTarget] = {}
    poll_every: PollEvery = _POLL
    lookback: Lookback = _LOOKBACK
    outgoing: OutgoingSettings = OutgoingSettings(max_response=_PAGE)

    def __post_init__(self) -> None:
        check_url("jira: url", self.url)
        if self.kind == "cloud" and bool(self.user) != bool(self.token):
            raise InvalidInput("jira: give both user and token, or neither")
        if not self.jql.strip() or "order by" in self.jql.lower():
            raise InvalidInput("jira: jql must select issues, without ORDER BY: the poller has its own order")


class ReposSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which forges and which Jira the jobs come from, and how they are performed."""

    gitlab: GitLabSettings | None = None
    github: GitHubSettings | None = None
    jira: JiraSettings | None = None
    jobs: JobSettings = JobSettings()
    # The word that begins a command, and the user names of those who may give one; empty: whoever may comment.
    command: Annotated[str, msgspec.Meta(pattern=r"^/[A-Za-z0-9_-]{1,40}$")] = "/copilot"
    authors: tuple[str, ...] = ()
    retention: Annotated[float, msgspec.Meta(ge=3600.0, le=3660.0 * DAY)] = 30.0 * DAY  # of what was received


def hook_secrets(given: Iterable[str | HookSecret]) -> list[HookSecret]:
    """The secrets, each with its projects."""
    return [HookSecret(secret=each) if isinstance(each, str) else each for each in given]


def _is_of(wanted: int | str, project_id: int, path: str) -> bool:
    if isinstance(wanted, int) or wanted.isdecimal():
        return int(wanted) == project_id
    wanted = wanted.casefold()  # GitHub does not distinguish upper and lower case
    return path.startswith(wanted) if wanted.endswith("/") else path == wanted


def _check_given(what: str, secrets: Iterable[str | HookSecret]) -> None:
    if any(not each.secret.strip() for each in hook_secrets(secrets)):
        raise InvalidInput(f"{what}: an empty secret would accept requests of anybody; remove it")
