"""Repositories: each review, command and issue is performed once. What people do, and what they list."""

from __future__ import annotations

from ...kit.commands import Act, Field, Listing, after, limit

_KEY = Field("key", "Key", "of the job, such as review:42:7:abc123", required=True, example="review:42:7:abc123")

FORGET = Act(
    name="repos.forget",
    summary="Forget a job that was done, so that the next report of it is performed",
    means="The next webhook or poll that reports it performs it again, and posts again.",
    nothing="No job with this key was done or reported, or it is waiting or running.",
    again="Nothing more happens.",
    fields=(_KEY,),
    changed="forgotten",
)
REPEAT = Act(
    name="repos.repeat",
    summary="Perform a job again now",
    means="It is put into the queue again, performed on what the branch is now, and posts again.",
    nothing="No job with this key is recorded, or it is waiting or running.",
    again="Nothing more happens while it waits or runs; afterwards it is performed once more.",
    fields=(_KEY,),
    changed="queued",
)
REWIND = Act(
    name="repos.rewind",
    summary="Rewind the watermark of a source, so that what came since is listed again",
    means="The next poll lists everything since then; jobs that are known are not performed again. A poll that runs "
    "right now sets the watermark again when it ends.",
    nothing="No such source is polled, or it was not polled beyond that time.",
    again="Nothing more happens.",
    fields=(
        Field("source", "Source", "as it is listed, such as gitlab:42", required=True, example="gitlab:42"),
        Field("to", "To", "a time such as 2027-01-31T22:00:00+01:00", required=True, example="2027-01-31T22:00:00Z"),
    ),
    changed="rewound",
)
JOBS = Listing(
    "/api/repos/jobs",
    "jobs",
    "List jobs that run or ran, the newest first",
    ("since", "state", "kind", "project", "subject", "key", "attempts", "error"),
    more=("id", "title", "author", "received_by", "repository", "worker", "commit_id", "url"),
    times=("since",),
    fields=(
        Field("state", hint="Only in this state, e.g. running.", option="--state"),
        Field("kind", hint="Only review, command or issue.", option="--kind"),
        Field("project", hint="Only of this project, e.g. group/name.", option="--project"),
        after("PLACE"),
        limit(50),
    ),
    none="No job has run.",
)
DUPLICATES = Listing(
    "/api/repos/duplicates",
    "duplicates",
    "List what was received and not queued, and why, the newest first",
    ("last", "outcome", "origin", "kind", "key", "times"),
    more=("forge", "project", "title", "first"),
    times=("last", "first"),
    fields=(after("PLACE"), limit(50)),
    none="Everything that was received was queued.",
)
WATERMARKS = Listing(
    "/api/repos/watermarks",
    "watermarks",
    "List how far each source was polled",
    ("source", "watermark", "lag"),
    more=("every",),
    times=("watermark",),
    none="Nothing is polled.",
)
