"""Probes: one synthetic probe per target at a time. What operators do and list."""

from __future__ import annotations

from ...kit.commands import Act, Field, Listing, after, limit

_NAME = Field("name", required=True, example="web")
_UNKNOWN = "There is no such target."

ADD = Act(
    name="probes.targets.add",
    title="Add a target",
    verb="probe",
    summary="Add a target, or replace one that was added before",
    means="Every replica starts to probe it within a few seconds. Expectations, headers and login flows are given over "
    "the API or in the settings.",
    again="Replaces it by the same.",
    api="/api/probes/targets",
    page="/probes/add",
    fields=(
        Field("name", "Name", "lower-case letters, digits, dots and dashes", required=True, example="web"),
        Field(
            "url",
            "URL",
            "https://, http://, tcp://host:port, tls://host:port or dns://server/name",
            required=True,
            example="https://example.com/health",
        ),
        Field("interval", "Every", "in seconds; 60 if empty", "--interval", "duration"),
        Field("timeout", "Timeout", "in seconds; 10 if empty", "--within", "duration"),
        Field("public", "Public", "true: on the status page", "--public", "flag"),
    ),
    asks=False,
    shows=True,
)
REMOVE = Act(
    name="probes.targets.remove",
    title="Remove a target",
    verb="remove",
    summary="Remove a target that was added over the API",
    means="It is not probed any more. Its history is deleted when it is too old.",
    nothing=_UNKNOWN,
    again="Refused: there is none.",
    api="/api/probes/targets/remove",
    page="/probes/remove",
    fields=(_NAME,),
    changed="removed",
)
PAUSE = Act(
    name="probes.pause",
    title="Pause a target",
    summary="Pause a target, of the settings too",
    means="It is not probed until somebody resumes it. If it is down, that is announced as resolved.",
    nothing="There is no such target, or it is paused already.",
    again="Nothing more happens.",
    fields=(_NAME,),
    changed="paused",
    asks=False,
)
RESUME = Act(
    name="probes.resume",
    title="Resume a target",
    summary="Resume a paused target",
    means="It is probed again, and is PENDING until the first results are there.",
    nothing="The target is not paused.",
    again="Nothing more happens.",
    fields=(_NAME,),
    changed="resumed",
    asks=False,
)
RUN = Act(
    name="probes.run",
    title="Probe now",
    verb="probe",
    summary="Probe a target now, and print the result",
    means="The result counts like that of a scheduled probe. If another probe of its URL is running, this one waits "
    "for some seconds, and is then skipped.",
    nothing=_UNKNOWN,
    again="Probes it again.",
    scope="write",
    fields=(_NAME,),
    audited=False,
    asks=False,
    shows=True,
    times=("at", "certificate_expires"),
)
LOGIN_TEST = Act(
    name="probes.login-test",
    title="Run a login test",
    verb="test",
    summary="Probe a target several times in a row, as its login flow says",
    means="All iterations run under one mutex, about 0.1 s apart.",
    nothing=_UNKNOWN,
    again="Tests it again.",
    scope="write",
    fields=(_NAME, Field("iterations", "Iterations", "3 if empty", "--iterations", "number", 3)),
    audited=False,
    asks=False,
    shows=True,
)
MAINTENANCE = Act(
    name="probes.maintenance.add",
    title="Maintenance",
    verb="announce maintenance of",
    summary="Neither probe nor announce some targets for a while",
    means="The targets are not probed during the window, which counts neither as up nor as down.",
    again="Adds another one.",
    api="/api/probes/maintenance",
    page="/probes/maintenance",
    fields=(
        Field("targets", "Targets", "one name per line; all if empty", "--target", rows=3, example="NAMES"),
        Field("lasts", "For how long", "30m, 2h, 1d", "--for", "duration", required=True),
        Field("starts", "From", "a time such as 2027-01-31T22:00:00+01:00; now if empty", "--starts"),
    ),
    asks=False,
    shows=True,
    times=("starts", "ends", "made"),
)
END_MAINTENANCE = Act(
    name="probes.maintenance.end",
    title="End a maintenance window",
    verb="end",
    summary="End a maintenance window now",
    means="The targets are probed again.",
    nothing="No current or future window has this id.",
    again="Refused: it has ended.",
    page="/probes/maintenance/end",
    fields=(Field("id", required=True, example="1762771200000001"),),
    changed="ended",
    asks=False,
)

LIST = Listing(
    "/api/probes/targets",
    "targets",
    "List all targets with their states",
    ("name", "state", "since", "seconds", "uptime_24h", "url", "error"),
    more=("title", "at", "status", "certificate_expires", "uptime_30d", "uptime_1y", "interval", "source"),
    times=("since", "at", "certificate_expires"),
    shares=("uptime_24h", "uptime_30d", "uptime_1y"),
    none="There are no targets.",
)
RESULTS = Listing(
    "/api/probes/results",
    "results",
    "List the results of a target, the newest first",
    ("at", "passed", "status", "seconds", "error"),
    more=("fence", "phases"),
    times=("at",),
    fields=(Field("target", example="web"), after("FENCE"), limit(50)),
    none="There are no results.",
)
WINDOWS = Listing(
    "/api/probes/maintenance",
    "maintenance",
    "List current and future maintenance windows",
    ("id", "targets", "starts", "ends", "made_by", "reason"),
    times=("starts", "ends"),
    none="There are none.",
)
