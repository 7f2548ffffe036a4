"""Jobs: what applications do beside requests, in every worker, again and again."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import structlog

from ..errors import SolelyError
from .figures import Figure

if TYPE_CHECKING:
    from ..apps.app import Application, Job
    from .service import Service

log = structlog.get_logger("solely.jobs")

JITTER = 0.2  # of the time between two runs, more or less: so that workers which start together do not stay together
# Its label is no `job`: Prometheus gives that name to what it scrapes.
FAILURES = Figure("solely_job_failures", "Runs of applications' jobs that failed", ("app", "what"))


async def keep_doing(service: Service, app: Application[Any], job: Job) -> None:
    """Does the job until it is cancelled; one that fails is logged, counted, and done again at its time."""
    await asyncio.sleep(job.every * random.random())
    while True:
        try:
            await job.work()
        except Exception as error:  # a job goes on, whatever happens
            service.metrics.count(FAILURES, app.name, job.name)
            expected = isinstance(error, SolelyError)  # a store that is away, and the like: its text says enough
            log.warning("job_failed", app=app.name, job=job.name, error=str(error), exc_info=not expected)
        await asyncio.sleep(job.every * random.uniform(1 - JITTER, 1 + JITTER))
