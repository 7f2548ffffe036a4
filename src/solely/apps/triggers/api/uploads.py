"""Uploads over HTTP, as trigger.dev's client stores a large payload before it triggers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from .... import InvalidInput
from ....kit import LIMITED, WRITE, Answer, Call, Problem, Route, Webhook
from ..model import now
from ..runtime import TriggersRuntime
from ..uploads import MOST_UPLOAD, MOST_UPLOADS, TICKET_SECONDS, Upload, UploadName, UploadTicket

STORED = "application/store"  # the payload type of a trigger that names an upload


class UploadAnswer(Answer, rename="camel"):
    """Where to PUT the payload within five minutes, and what a trigger sends as payload then, with the payloadType
    application/store."""

    presigned_url: str
    storage_path: str


async def find_upload(app: TriggersRuntime, principal: str, payload: msgspec.Raw, options: Mapping[str, Any]) -> Upload:
    """The upload that a trigger names, or its payload as it was sent; raises InvalidInput if there is none."""
    if options.get("payloadType") != STORED:
        return Upload(payload, "", 0)
    try:
        name = msgspec.json.decode(payload, type=str)
    except (ValueError, RecursionError):
        raise InvalidInput(f"payload: with the payloadType {STORED} it is the name of an upload, a text") from None
    return await app.uploads.find(app.environment_of(principal), principal, name)


def with_upload(upload: Upload, options: dict[str, Any]) -> dict[str, Any]:
    """The options as if the payload had been sent with them."""
    return {**options, "payloadType": upload.kind} if upload.kind else options


def routes(app: TriggersRuntime) -> list[Route]:
    """The routes of uploads."""

    async def announce(call: Call[None, None]) -> UploadAnswer:
        """Get an address to which a large payload can be uploaded."""
        try:
            name = msgspec.convert(call.params["name"], UploadName)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"the name of the upload: {error}") from None
        owner = call.principal.name
        ticket = UploadTicket(app.environment_of(owner), owner, name, now() + TICKET_SECONDS)
        url = f"{_base(call)}/api/v2/uploads/{app.uploads.ticket(ticket)}"
        return UploadAnswer(presigned_url=url, storage_path=name)

    async def store(call: Call[None, None]) -> None:
        """Upload a payload of at most 4 MiB, as UTF-8, with its media type."""
        ticket = app.uploads.read(call.params["ticket"])
        assert ticket is not None, "the route has checked it"
        if not await app.uploads.add(ticket, call.header("content-type") or "text/plain", call.raw):
            most = MOST_UPLOADS >> 20
            raise Problem(LIMITED, f"the uploads of this environment have {most} MiB already; they end within minutes")

    def valid(call: Call[Any, Any]) -> bool:
        return app.uploads.read(call.params["ticket"]) is not None

    signed = Webhook(valid, "the address that PUT /api/v2/packets/{name} returned, within five minutes", valid)
    again = "Safe: replaces what was uploaded under this name."
    given: Any = {"error_field": True, "again": again}
    return [
        Route("PUT", "/api/v2/packets/{name...}", WRITE, announce, **given),
        Route(
            "PUT", "/api/v2/uploads/{ticket}", signed, store, status=204, cap=MOST_UPLOAD,
            over_max_body=True, refusals=(LIMITED,), **given,
        ),
    ]  # fmt: skip


def _base(call: Call[None, None]) -> str:
    """The address of this service as the caller knows it; `public_base_url` if that has the same host, as behind a
    proxy for TLS."""
    host, public = call.header("host"), call.service.settings.public_base_url
    return public.rstrip("/") if urlsplit(public).netloc == host else f"{call.scope['scheme']}://{host}"
