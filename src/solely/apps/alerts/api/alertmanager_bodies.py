"""The bodies and queries of Alertmanager's API (version 2): its names of fields and states.

Its clients know an alert by labels alone, so its name, severity and source are among them. They may send more than is
described here, which is ignored.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from ....kit import Reason
from ..model import Labels
from ..suppression.matchers import ALERTNAME, LABEL, MAX_MATCHER, MOST_MATCHERS, Matcher, parse
from ..suppression.silences import Silence

_APART = {"name": f"{LABEL}name", "source": f"{LABEL}source"}  # label → our matcher of it, where a field has its name

Time = Annotated[datetime, msgspec.Meta(tz=True)]
Author = Annotated[str, msgspec.Meta(max_length=255)]
LabelName = Annotated[str, msgspec.Meta(pattern=r"^[^\s=!~\"]+\Z", max_length=255)]
SilenceState = Literal["active", "pending", "expired"]
STATES: tuple[SilenceState, ...] = ("active", "pending", "expired")  # in the order of a listing


class LabelMatcher(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A matcher of one label."""

    name: LabelName
    value: Annotated[str, msgspec.Meta(max_length=MAX_MATCHER)]
    is_regex: bool
    is_equal: bool = True

    @classmethod
    def parse(cls, text: str) -> LabelMatcher:
        """The matcher that a client wrote, such as alertname=~"Disk.*"; InvalidInput if it is invalid."""
        name, operator, value = parse(text)
        return cls(name=name, value=value, is_regex="~" in operator, is_equal="!" not in operator)

    @classmethod
    def of(cls, text: str) -> LabelMatcher:
        """A matcher of one of our silences."""
        found = cls.parse(text)
        label = ALERTNAME if found.name == "name" else found.name.removeprefix(LABEL)
        return msgspec.structs.replace(found, name=label)

    def own(self) -> str:
        """This matcher, as our silences have it."""
        operator = ("=~" if self.is_equal else "!~") if self.is_regex else ("=" if self.is_equal else "!=")
        return str(Matcher(_APART.get(self.name, self.name), operator, self.value))


class PostableSilence(msgspec.Struct, kw_only=True, rename="camel"):
    """A silence to add; with an `id`, to edit."""

    matchers: Annotated[list[LabelMatcher], msgspec.Meta(min_length=1, max_length=MOST_MATCHERS)]
    starts_at: Time
    ends_at: Time
    created_by: Author
    reason: Reason = msgspec.field(name="comment")
    id: Annotated[str, msgspec.Meta(max_length=64)] | None = None

    @property
    def key(self) -> str:
        """For the audit log."""
        return self.id or ", ".join(self.texts())

    def texts(self) -> list[str]:
        """The matchers, as our silences have them."""
        return [each.own() for each in self.matchers]

    def edits(self, silence: Silence, now: float) -> bool:
        """True if it changes this silence without changing what it has suppressed so far: else another one replaces it,
        as in Alertmanager."""
        starts = self.starts_at.timestamp()
        same_start = abs(starts - silence.starts) < 1.0 if silence.starts <= now else starts >= now
        return same_start and silence.ends > now and set(self.matchers) == set(map(LabelMatcher.of, silence.matchers))


class GettableSilence(msgspec.Struct, kw_only=True, rename="camel"):
    """A silence."""

    id: str
    status: dict[str, SilenceState]  # {state: …}
    updated_at: str
    comment: str
    created_by: str
    starts_at: str
    ends_at: str
    matchers: list[LabelMatcher]
    annotations: Labels = {}


class SilencesFilter(msgspec.Struct, kw_only=True):
    """Silences with all of these matchers."""

    filter: list[str] = []
    active: bool = True
    pending: bool = True
    expired: bool = True


class AlertState(msgspec.Struct, kw_only=True, rename="camel"):
    """Whether the alert is silenced, and by which silences. Nothing is inhibited or muted."""

    state: Literal["active", "suppressed"]
    silenced_by: list[str]
    inhibited_by: list[str] = []
    muted_by: list[str] = []


class GettableAlert(msgspec.Struct, kw_only=True, rename="camel"):
    """An alert that fires."""

    annotations: Labels
    ends_at: str
    fingerprint: str
    receivers: list[dict[str, str]]  # {name: …} of each publisher that wants it
    starts_at: str
    status: AlertState
    updated_at: str
    labels: Labels
    generator_url: str = msgspec.field(name="generatorURL")


class AlertsFilter(msgspec.Struct, kw_only=True):
    """Alerts that match, of these states, and for a publisher whose whole name matches `receiver`. No alert is
    inhibited or unprocessed."""

    filter: list[str] = []
    active: bool = True
    silenced: bool = True
    receiver: str = ""


class AlertmanagerStatus(msgspec.Struct, kw_only=True, rename="camel"):
    """The status of the receiver; `config` has the publishers, without their settings."""

    cluster: dict[str, str | list[str]]
    version_info: dict[str, str]
    config: dict[str, str]
    uptime: str
