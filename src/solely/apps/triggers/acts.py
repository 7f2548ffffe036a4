"""What operators do and list, in the words of the API, the pages and the commands. Imports nothing of the service, so
that commands start quickly."""

from __future__ import annotations

from ...kit.commands import Act, Field, Listing, after, limit

_RUN = Field("id", example="run_01hzx3")
_NO_RUN = "There is no such run in an environment of this token."

CANCEL = Act(
    name="triggers.cancel",
    title="Cancel a run",
    summary="Cancel a run, which is not tried again",
    means="A worker that has the run learns it with its next heartbeat, and can no longer complete it.",
    nothing="The run has ended already, or there is none.",
    again="Nothing more happens.",
    scope="write",
    fields=(_RUN,),
    changed="canceled",
)
REPLAY = Act(
    name="triggers.replay",
    title="Replay a run",
    summary="Trigger a run once more, with the same payload and options, under a new key",
    means="A new run gets the payload, tags, metadata and options of this one, which stays as it is. It is gated, "
    "buffered and tried like any other.",
    nothing=_NO_RUN,
    again="With the same key, returns the same run.",
    scope="write",
    fields=(
        _RUN,
        Field("new_key", "Key of the new run", "a second replay with the same key is the same run", "--key"),
    ),
    asks=False,
    shows=True,
)
RESET = Act(
    name="triggers.reset",
    title="Reset an idempotency key",
    summary="Reset the idempotency key of a task, so that the next trigger makes a new run",
    means="The run that has the key now keeps running. The next trigger with this key makes a new run.",
    nothing="No run of this task has this key, or it has expired.",
    again="Nothing more happens.",
    fields=(
        Field("task", "Task", required=True, example="send-mail"),
        Field("user_key", "Key", required=True, example="order-42"),
        Field("environment", "Environment", "the token's own if empty", "--environment"),
    ),
    changed="reset",
)

RUNS = Listing(
    "/api/triggers/runs",
    "runs",
    "List runs, the newest first: of the token's environment, or of all for an admin",
    ("id", "task", "state", "attempts", "created_at", "worker"),
    more=("environment", "key", "tags", "available_at", "started_at", "finished_at", "error"),
    times=("created_at", "available_at", "started_at", "finished_at"),
    fields=(
        Field("environment", hint="Only of this environment.", option="--environment"),
        Field("task", hint="Only of this task.", option="--task"),
        Field("state", hint="Only in this state, e.g. FAILED.", option="--state"),
        Field("tag", hint="Only with this tag.", option="--tag"),
        Field("key", hint="Only with this idempotency key.", option="--key"),
        Field("since", hint="Only of the last, e.g. 2h.", option="--since", reading="ago"),
        after("PLACE"),
        limit(50),
    ),
    none="There is no such run.",
)
GATES = Listing(
    "/api/triggers/gate",
    "gates",
    "Show the gate and the buffer of each environment that the token sees",
    ("environment", "gate", "tripped", "buffer", "buffered", "waiting", "executing", "failed"),
    more=("parents", "trip_threshold", "trip_window", "trip_hold"),
    fields=(Field("environment", hint="Only of this environment.", option="--environment"),),
)
