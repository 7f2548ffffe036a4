"""A program as a publisher: it gets the notification as JSON on its standard input, and exits with 0 on success."""

from __future__ import annotations

from .... import AsyncClient
from ....kit import NotStarted, Program, run_program, sanitized
from ..model import Notification
from .publisher import MatchingPublisher, PublishFailed, attempts_of
from .settings import CommandSettings
from .webhook import event

MAX_VARIABLE = 4096  # bytes of an alert's text in the environment, which is small; standard input has all of it


class CommandPublisher(MatchingPublisher[CommandSettings]):
    """Runs the program, which is ended if the publish times out."""

    def __init__(self, settings: CommandSettings, once: AsyncClient) -> None:
        super().__init__(settings)
        self._attempts = attempts_of(settings, once)

    async def publish(self, notification: Notification) -> None:
        """Returns when it exited with 0; else raises PublishFailed."""
        program = self._settings.program(event(notification), variables(notification))
        await self._attempts.run(lambda: self._run(program))

    async def _run(self, program: Program) -> None:
        try:
            ended = await run_program(program)
        except NotStarted as error:
            raise PublishFailed(f"{self.name}: {error}", permanent=error.permanent) from None
        if not ended.ok:
            text = sanitized(ended.stderr_tail.decode(errors="replace"), self._settings.secret_texts(), end=True)
            raise PublishFailed(f"{self.name}: {program.argv[0]} {ended}{f': {text}' if text else ''}")


def variables(notification: Notification) -> dict[str, str]:
    """The environment variables of a notification: enough for a one-line program."""
    alert = notification.alert
    fields = {
        "ID": notification.id,
        "STATUS": alert.status,
        "NAME": alert.name,
        "SEVERITY": alert.severity,
        "SOURCE": alert.source,
        "FINGERPRINT": alert.fingerprint,
    }
    return {f"SOLELY_ALERT_{name}": _bounded(value) for name, value in fields.items()}


def _bounded(text: str) -> str:
    """The text without NUL, cut to what a variable can hold."""
    return text.replace("\0", " ").encode(errors="replace")[:MAX_VARIABLE].decode(errors="ignore")
