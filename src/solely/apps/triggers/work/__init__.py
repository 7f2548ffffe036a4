"""Work: runs are leased to workers over HTTP, renewed, completed, retried, and failed for good after so many attempts.

`leases` has the steps, each one statement on the database's clock, which `api.work` serves; `timeline` is for people
who look; `tasks`, `children` and `worker` are the Python worker on top of the API; `wire` has what both sides say.
"""

from .children import ChildFailed
from .tasks import RunAttempt, task
from .worker import TaskWorker

__all__ = ["ChildFailed", "RunAttempt", "TaskWorker", "task"]
