"""What operators do and list, in the words of the API, the pages and the commands. Imports nothing of the service, so
that commands start quickly."""

from __future__ import annotations

from dataclasses import replace

from ...kit.commands import Act, Field, Listing, after, limit

FINGERPRINT, ANY_FINGERPRINT = Field("fingerprint", example="9f86d081884c7d65"), Field("fingerprint", default="")
_FOR = "30m, 2h, 1d"
_WHY = "/alerts/why?fingerprint={fingerprint}"
_NO_WINDOW = "There is no such window any more: the next alert sends a notification."
_ENDED = "No current or future silence has this id: it may have ended."
_MATCHERS = "one per line: name, severity, source, fingerprint or a label, then =, !=, =~ or !~, then a value"
_NOT_STOPPED = (
    "The next alert sends a notification at once. A notification that is being sent right now is not stopped, so that "
    "people may be notified twice."
)

EXPIRE = Act(
    name="alerts.windows.expire",
    title="End a window",
    verb="end",
    summary="End the window of a fingerprint and severity, so that the next alert is sent",
    means=_NOT_STOPPED,
    nothing=_NO_WINDOW,
    again="Ends what is there then.",
    api="/api/alerts/reservations/expire",
    page="/alerts/expire",
    back=_WHY,
    fields=(FINGERPRINT, Field("severity", example="critical")),
    changed="expired",
)
CLEAR = replace(
    EXPIRE,
    name="alerts.windows.clear",
    title="End all windows of an alert",
    summary="End all windows of a fingerprint",
    api="/api/alerts/reservations/clear",
    page="/alerts/clear",
    fields=(FINGERPRINT,),
    changed="cleared",
)
_MATCHING = Field(
    "matchers",
    "Matchers, all of which an alert must match",
    _MATCHERS,
    reading="lines",
    required=True,
    rows=5,
    example="severity=critical",
)
_LASTS = Field("lasts", "For how long", _FOR, "--for", "duration", required=True)
_STARTS = Field("starts", "From", "a time such as 2027-01-31T22:00:00+01:00; now if empty", "--starts")
SILENCE = Act(
    name="alerts.silences.add",
    title="Silence alerts",
    verb="silence",
    summary="Silence alerts that match all matchers for a while: severity=critical, name=~'Disk.*', team!=dba",
    means="Alerts that match all matchers send no notifications until the silence ends.",
    nothing="No alert is silenced.",
    again="Adds another one, unless it comes with the same Idempotency-Key.",
    api="/api/alerts/silences",
    page="/alerts/silences",
    back="/alerts#silences",
    fields=(_MATCHING, _LASTS, _STARTS),
    keyed=True,
    asks=False,
    shows=True,
    times=("starts", "ends", "made"),
)
EDIT_SILENCE = replace(
    SILENCE,
    name="alerts.silences.edit",
    title="Edit a silence",
    verb="edit",
    summary="Edit a silence that has not ended; one that has begun keeps its start",
    means="The matchers, the reason and the end take the place of the old ones.",
    nothing=_ENDED,
    again="Edits it again.",
    api="/api/alerts/silences/edit",
    page="/alerts/silences/edit",
    fields=(Field("id", example="1762771200000001"), *SILENCE.fields),
    keyed=False,
)
END_SILENCE = Act(
    name="alerts.silences.end",
    title="End a silence",
    verb="end",
    summary="End a silence now",
    means="The next alert that matches sends a notification again.",
    nothing=_ENDED,
    again="Refused: it has ended.",
    api="/api/alerts/silences/expire",
    page="/alerts/silences/end",
    back="/alerts#silences",
    fields=(Field("id", example="1762771200000001"),),
    changed="expired",
    asks=False,
)
ACKNOWLEDGE = Act(
    name="alerts.acknowledge",
    title="Acknowledge an alert",
    verb="acknowledge",
    summary="Acknowledge an alert, which then sends no further notifications until it resolves",
    means="An acknowledged alert sends no further notifications until it resolves or the acknowledgement expires. The "
    "resolved notification is sent.",
    nothing="The alert is not open: no notification was sent, or it is resolved.",
    again="Takes the place of the first one.",
    scope="write",
    api="/api/alerts/acknowledge",
    page="/alerts/acknowledge",
    back=_WHY,
    fields=(
        FINGERPRINT,
        Field("for", "At most for", _FOR, "--for", "duration"),
        Field("severity", "Only this severity", "other severities are still sent", "--severity", example="all"),
        Field("comment", "Comment", "shown with your name", "--comment", rows=2),
    ),
    asks=False,
    shows=True,
    times=("made", "ends"),
)
UNACKNOWLEDGE = Act(
    name="alerts.unacknowledge",
    title="Remove an acknowledgement",
    verb="remove",
    summary="Remove the acknowledgement of an alert",
    means="The next alert sends a notification again.",
    nothing="The alert is not acknowledged: it may be resolved.",
    again="Refused: there is none.",
    scope="write",
    api="/api/alerts/unacknowledge",
    page="/alerts/unacknowledge",
    back=_WHY,
    fields=(FINGERPRINT,),
    changed="unacknowledged",
    asks=False,
)

FIRING = Listing(
    "/api/alerts/firing",
    "firing",
    "List the alerts that fire now, the worst first, and of one severity the newest first",
    ("severity", "name", "fingerprint", "since", "last_notified", "acknowledged_by", "silenced_by"),
    more=("source", "labels"),
    times=("since", "last_notified"),
    fields=(
        Field("matchers", hint="Only those that match, e.g. team=storage.", option="--match"),
        Field("severity", hint="Only of this severity.", option="--severity"),
        limit(100),
    ),
    inner=(
        *((name, f"alert.{name}") for name in ("severity", "name", "fingerprint", "source", "labels")),
        ("acknowledged_by", "acknowledged.made_by"),
        ("silenced_by", "silenced.made_by"),
    ),
    none="No matching alert fires.",
)
WINDOWS = Listing(
    "/api/alerts/reservations",
    "reservations",
    "List what is being sent or quiet, of a fingerprint or of all",
    ("fingerprint", "severity", "reason", "left", "suppressed_day", "last_sent", "who"),
    more=("suppressed", "sent", "key"),
    times=("last_sent",),
    fields=(ANY_FINGERPRINT, after("KEY"), limit(100)),
    blank=(("severity", "({status})"),),
)
HISTORY = Listing(
    "/api/alerts/history",
    "history",
    "List notifications, of a fingerprint or of all, the newest first",
    ("at", "outcome", "status", "fingerprint", "severity", "name", "results"),
    more=("id", "source", "notified", "seconds", "labels", "annotations"),
    times=("at", "notified"),
    fields=(
        ANY_FINGERPRINT,
        Field("severity", hint="Only of this severity.", option="--severity"),
        Field("since", hint="Only of the last, e.g. 2h.", option="--since", reading="ago"),
        after("PLACE"),
        limit(50),
    ),
)
ACKNOWLEDGED = Listing(
    "/api/alerts/acknowledged",
    "acknowledged",
    "List acknowledgements, the newest first",
    ("fingerprint", "severity", "made_by", "ends", "comment"),
    more=("made",),
    times=("made", "ends"),
    fields=(limit(100),),
)
SILENCES = Listing(
    "/api/alerts/silences",
    "silences",
    "List current and future silences, or those that ended",
    ("id", "matchers", "ends", "made_by", "reason"),
    more=("starts", "made", "ended_by", "ended_why"),
    times=("starts", "ends", "made"),
    fields=(Field("ended", hint="Those that ended.", option="--ended", reading="flag"), limit(100)),
)
