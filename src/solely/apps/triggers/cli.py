"""solely triggers: triggers runs at a running service, shows what became of them, and works on them."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from ...kit.commands import (
    DURATION,
    Exit,
    Form,
    Group,
    Listing,
    act_command,
    at_service,
    in_form,
    leave,
    list_command,
    parsed_json,
    show_rows,
    talk,
    timed,
)
from . import acts

if TYPE_CHECKING:
    from ...kit.commands import ServiceClient
    from .work.tasks import Tasks


@click.group(cls=Group, default="runs")
def command() -> None:
    """Triggers: same idempotency key, same run. Without a command, lists runs. Commands call the service at --at, with
    the token in SOLELY_TOKEN, which also names the environment."""


command.add_command(list_command(acts.RUNS, "runs"))
command.add_command(list_command(acts.GATES, "gate"))
command.add_command(act_command(acts.CANCEL, "cancel"))
command.add_command(act_command(acts.REPLAY, "replay"))
command.add_command(act_command(acts.RESET, "reset"))


@command.command(
    examples=['{path} send-mail --payload \'{"to": "alice"}\' --key order-42', "{path} report --delay 10m"]
)
@click.argument("task")
@click.option("--payload", default="null", metavar="JSON", help="The payload.  [default: null]")
@click.option("--key", help="Its idempotency key: a repeat with the same key is the same run.")
@click.option("--key-ttl", type=DURATION, help="How long the key protects the run.  [default: the service's setting]")
@click.option("--tag", "tags", multiple=True, metavar="TEXT", help="Repeatable.")
@click.option("--delay", type=DURATION, help="When it may begin.")
@in_form
@at_service
def trigger(client: ServiceClient, form: Form, task: str, payload: str, **given: Any) -> None:
    """Triggers a run of TASK and prints its id."""
    value = parsed_json(payload, "--payload")
    spans = {"idempotencyKeyTTL": given["key_ttl"], "delay": given["delay"]}
    options = {
        "idempotencyKey": given["key"],
        "tags": list(given["tags"]),
        **{name: f"{seconds:g}s" for name, seconds in spans.items() if seconds is not None},
    }
    body = {"payload": value, "options": {name: each for name, each in options.items() if each}}
    form.one(client.post(f"/api/v1/tasks/{quote(task, safe='')}/trigger", body, dict[str, Any]))


_TIMELINE = Listing("", "timeline", "Timeline", ("at", "kind", "attempt", "detail"), times=("at",))
_ATTEMPTS = Listing(
    "", "attempts", "Attempts", ("number", "outcome", "worker", "began", "ended", "error"), times=("began", "ended")
)


@command.command(examples=["{path} run_01hzx3"])
@click.argument("id")
@in_form
@at_service
def show(client: ServiceClient, form: Form, id: str) -> None:
    """Shows the run ID with its payload, output, attempts and timeline."""
    found = client.get(f"{acts.RUNS.path}/{quote(id, safe='')}", dict[str, Any])
    if form.name == "json":
        form.one(found)
        return
    run = timed(found["run"], acts.RUNS.times)
    form.one({**run, **{name: found[name] for name in ("payload", "output", "metadata", "replay_of")}})
    for listing in (_ATTEMPTS, _TIMELINE):
        talk(f"\n{listing.summary}")
        show_rows(form, listing, found)


@command.command(examples=["{path} my_tasks", "{path} my_tasks --at-once 8 --until-empty"])
@click.argument("module")
@click.option("--at-once", type=click.IntRange(1, 200), default=4, show_default=True, help="Runs at the same time.")
@click.option("--lease", type=DURATION, default="30s", show_default=True, help="How long others wait after a crash.")
@click.option("--grace", type=DURATION, default="10s", show_default=True, help="How long runs may take to end on stop.")
@click.option("--name", default="", metavar="TEXT", help="Shown with runs.  [default: host:pid]")
@click.option("--until-empty", is_flag=True, help="Stop when no run is due.")
@at_service
def work(
    client: ServiceClient, module: str, at_once: int, lease: float, grace: float, name: str, until_empty: bool
) -> None:
    """Runs the tasks of the Python module MODULE, which are its functions with @task("name").

    Stops on SIGTERM and Ctrl-C, after the runs in flight. Exits with 1 if a task did not end in time.
    """
    from .work.worker import TaskWorker

    if not 1.0 <= lease <= 3_600.0:
        raise click.BadParameter(f"{lease:.12g}s is not between 1s and 1h", param_hint="--lease")
    tasks = _tasks_of(module)
    worker = TaskWorker(client, tasks, at_once=at_once, lease=lease, name=name, report=talk)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.end())
    talk(f"{worker.name} works on {', '.join(tasks)}")
    worker.run(until_empty=until_empty)
    if not worker.stop(grace):
        talk("solely: a task did not end in time, and is left to its lease")
        leave(Exit.ERROR)


def _tasks_of(module: str) -> Tasks:
    """The tasks of this module; UsageError if it cannot be imported, or has none."""
    from .work.tasks import task

    if not all(part.isidentifier() for part in module.split(".")):
        example = "write it as in an import, e.g. my_tasks or package.tasks"
        raise click.UsageError(f"{module!r:.80} is not the name of a Python module: {example}")
    sys.path.insert(0, os.getcwd())
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, and imports something that is not
        raise click.UsageError(f"there is no module {module!r} in {os.getcwd()} or on the path") from None
    if not task:
        raise click.UsageError(f'the module {module!r} has no task: decorate a function with @task("name")')
    return task
