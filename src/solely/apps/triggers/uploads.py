"""Uploads: payloads that trigger.dev's client stores before the trigger that names them. An upload needs a ticket,
which is signed and names its place; the trigger copies it into its run."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Annotated

import msgspec

from ... import InvalidInput
from ...kit import Queries, same
from .model import now

MOST_UPLOAD = 4 * 1024 * 1024  # bytes: as much as a payload that is sent with its trigger
MOST_UPLOADS = 256 * 1024 * 1024  # bytes of all uploads of an environment
LEAST_SIZE = 64 * 1024  # bytes that an upload counts for: the client uploads from 128 KiB on, and rows have a cost
UPLOAD_SECONDS = 900.0  # an upload is kept: the trigger follows at once, and its retries within minutes
TICKET_SECONDS = 300.0  # a ticket is valid: the client repeats an upload that failed for some 20 seconds
_KIND = 100  # characters of a media type

UploadName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_./-]{1,256}\Z")]


class UploadTicket(msgspec.Struct, frozen=True):
    """Where a payload may be stored: under this name, for this token of this environment, until `ends`."""

    environment: str
    owner: str
    name: UploadName
    ends: float

    def place(self) -> dict[str, str]:
        return {"environment": self.environment, "owner": self.owner, "name": self.name}


class Upload(msgspec.Struct, frozen=True):
    """A payload: its text as a JSON string, its media type, and its size in bytes."""

    content: msgspec.Raw
    kind: str
    size: int


class Uploads:
    """Stores and finds uploads in SQL. `sign` makes the signature of a text."""

    def __init__(self, queries: Queries, sign: Callable[[str], str]) -> None:
        self._queries, self._sign = queries, sign

    def ticket(self, ticket: UploadTicket) -> str:
        """The ticket as a part of an address."""
        text = base64.urlsafe_b64encode(msgspec.json.encode(ticket)).decode()
        return f"{text}.{self._sign(text)}"

    def read(self, given: str) -> UploadTicket | None:
        """The ticket; None if it is forged or has expired."""
        text, _, signature = given.partition(".")
        if not same(signature, self._sign(text)):
            return None
        ticket = msgspec.json.decode(base64.urlsafe_b64decode(text), type=UploadTicket)
        return ticket if now() < ticket.ends else None

    async def add(self, ticket: UploadTicket, kind: str, body: bytes) -> bool:
        """Stores a payload, in place of an earlier one of its name; False if the environment has too many. Raises
        InvalidInput if it is not text."""
        try:
            content = msgspec.json.encode(body.decode()).decode()
        except UnicodeDecodeError as error:
            raise InvalidInput(f"the payload is not UTF-8: {error}") from None
        counted = {"size": max(len(body), LEAST_SIZE), "most": MOST_UPLOADS}
        kind = kind.partition(";")[0].replace("\0", "")[:_KIND]
        return bool(await self._queries.run("add_upload", kind=kind, content=content, **counted, **ticket.place()))

    async def find(self, environment: str, owner: str, name: str) -> Upload:
        """The upload of this token; raises InvalidInput if there is none."""
        ticket = UploadTicket(environment, owner, name.replace("\0", ""), 0.0)
        row = await self._queries.row("upload", life=UPLOAD_SECONDS, **ticket.place())
        if row is None:
            raise InvalidInput(f"payload: this token has uploaded no {name!r:.80} in the last {UPLOAD_SECONDS:g} s")
        return Upload(msgspec.Raw(row["content"].encode()), row["kind"], row["size"])

    async def forget(self) -> None:
        """Deletes uploads that are too old."""
        await self._queries.run("forget_uploads", life=UPLOAD_SECONDS)
