"""Sends messages to receivers that settings name: each within its timeout, with quick retries and a breaker."""

from __future__ import annotations

from email.message import EmailMessage
from typing import Protocol, TypeVar

from ..client import AsyncClient
from ..programs import NotStarted, Program
from ..programs import run as run_program
from .attempts import Attempts
from .caller import Caller
from .message import CallFailed, Request
from .receivers import MailReceiver, ProgramReceiver, Receiver, UrlReceiver
from .sanitizing import sanitized
from .smtp import Mailer

M = TypeVar("M", contravariant=True)


class Sender(Protocol[M]):
    """Sends messages of one kind to one receiver."""

    async def send(self, message: M) -> list[str]:
        """Returns when the receiver has it, with the recipients that were refused while others were accepted. Else
        raises CallFailed, within the receiver's timeout or little more."""

    async def close(self) -> None:
        """Closes its connections; safe to call twice."""


class RequestSender:
    """Makes requests of a receiver at a URL."""

    def __init__(self, receiver: UrlReceiver, once: AsyncClient, breaker: str) -> None:
        self._caller = Caller(receiver.name, receiver.outgoing(), once=once, breaker=breaker)

    async def send(self, message: Request) -> list[str]:
        """Returns after a 2xx; else raises CallFailed."""
        await self._caller.call_ok(message)
        return []

    async def close(self) -> None:
        """Closes its connections; safe to call twice."""
        await self._caller.close()


class ProgramSender:
    """Runs programs, each of which is ended if it exceeds the receiver's timeout."""

    def __init__(self, receiver: ProgramReceiver, once: AsyncClient, breaker: str) -> None:
        self._receiver, self._attempts = receiver, _attempts(receiver, once, breaker)

    async def send(self, message: Program) -> list[str]:
        """Returns when the program exited with 0; else raises CallFailed."""
        await self._attempts.run(lambda: self._run(message))
        return []

    async def close(self) -> None:
        """Does nothing: a program ends with its attempt."""

    async def _run(self, program: Program) -> None:
        name = self._receiver.name
        try:
            ended = await run_program(program)
        except NotStarted as error:
            raise CallFailed(f"{name}: {error}", permanent=error.permanent) from None
        if not ended.ok:
            text = sanitized(ended.stderr_tail.decode(errors="replace"), self._receiver.secret_texts(), end=True)
            raise CallFailed(f"{name}: {program.argv[0]} {ended}{f': {text}' if text else ''}")


class MailSender:
    """Sends mails to the recipients of a receiver."""

    def __init__(self, receiver: MailReceiver, once: AsyncClient, breaker: str) -> None:
        self._receiver, self._attempts = receiver, _attempts(receiver, once, breaker)
        self._mailer = Mailer(receiver.name, receiver.server(), receiver.at_once)

    async def send(self, message: EmailMessage) -> list[str]:
        """Returns when the server has it, with the recipients that it refused while it accepted others; else raises
        CallFailed."""
        return await self._attempts.run(lambda: self._mailer.send(message, self._receiver.sender, self._receiver.to))

    async def close(self) -> None:
        """Shuts its threads down; safe to call twice."""
        self._mailer.close()


def _attempts(receiver: Receiver, once: AsyncClient, breaker: str) -> Attempts:
    timeout, at_once = receiver.timeout, receiver.at_once
    return Attempts(receiver.name, timeout=timeout, at_once=at_once, once=once, breaker=breaker)
