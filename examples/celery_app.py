"""Celery: a task that is queued or running once per account, from `delay()` to its end.

export SOLELY_URL=redis://localhost BROKER_URL=redis://localhost/1
python -m celery --app examples.celery_app worker --pool solo
python -m examples.celery_app
"""

# ruff: noqa: T201 (an example prints)

from __future__ import annotations

import os
from typing import Any

from celery import Celery

import solely
from solely.integrations.celery import unique

BROKER = os.environ.get("BROKER_URL", "redis://localhost:6379/1")

once = solely.Client()  # the store that SOLELY_URL names: senders and workers share it
app = Celery("examples.celery_app", broker=BROKER, backend=BROKER)


@app.task(bind=True, base=unique(once, key=lambda account: f"sync:{account}"), name="sync")
def sync(self: Any, account: str) -> str:
    return f"synced {account} under fence {self.lease.fence}"


def main() -> None:
    first, again = sync.delay("acme"), sync.delay("acme")
    print(f"the second is {again.state}")  # IGNORED: nothing was queued
    print(first.get(timeout=120))
    once.close()


if __name__ == "__main__":
    main()
