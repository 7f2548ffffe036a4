"""The settings of outgoing calls, for a section of an application's own settings."""

from __future__ import annotations

from typing import Annotated

import msgspec

from .checks import check_network
from .message import MAX_REDIRECTS

Timeout = Annotated[float, msgspec.Meta(ge=0.1, le=60.0, description="seconds for one call, its retries included")]
AtOnce = Annotated[int, msgspec.Meta(ge=1, le=1000, description="concurrent calls per worker; others wait")]


class OutgoingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a receiver is called.

    `try_timeout` bounds each try, if it is to be shorter than `timeout`. `guard` refuses addresses that are not public,
    except for the networks of `guard_allow`. `ca_file` names the certificates to trust instead of the system's;
    `verify = false` trusts any. At most `max_response` bytes of a body are kept, and
    up to `max_counted` read and counted. `body_timeout`: the status is what
    counts; a body that does not follow within that many seconds is returned incomplete. `reuse = false` opens a
    connection for every request, whose timings then include those of connecting.
    """

    timeout: Timeout = 10.0
    try_timeout: Timeout | None = None
    retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 3
    at_once: AtOnce = 20
    guard: bool = False
    guard_allow: tuple[str, ...] = ()
    ca_file: str = ""
    verify: bool = True
    reuse: bool = True
    max_redirects: Annotated[int, msgspec.Meta(ge=0, le=MAX_REDIRECTS)] = MAX_REDIRECTS
    max_response: Annotated[int, msgspec.Meta(ge=1, le=64 << 20)] = 1 << 20  # a page of an API has some 100 KiB
    max_counted: Annotated[int, msgspec.Meta(ge=0, le=64 << 20)] = 0
    body_timeout: Annotated[float, msgspec.Meta(gt=0.0, le=60.0)] | None = None

    def __post_init__(self) -> None:
        for network in self.guard_allow:
            check_network("guard_allow:", network)
