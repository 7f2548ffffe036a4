"""Checks who may write reserved names. Only an application writes its own names; whom it does not hide them from may
read them, and admins may clear them, which is audited. Only the service writes the audit log, and nobody clears it."""

from __future__ import annotations

from typing import NoReturn

from ..drivers.permitted import Check
from ..errors import NameReserved
from ..names import AUDIT, RESERVED, owner_of_op, reserved
from ..ops import READS, Clear, Op
from .visibility import check_read

SERVICE = "service"  # owner of the names that the service itself uses


def general(op: Op) -> None:
    """Permits the general API to write all names but reserved ones, and to read those that the current caller may see;
    else raises NameReserved."""
    check_read(op)
    if type(op) not in READS and (owner := owner_of_op(op)):
        _refuse(op, owner)


def clearing(op: Op) -> None:
    """Like `general`; also permits admins, whose reason is audited, to clear what an application stores."""
    if type(op) is not Clear or owner_of_op(op) == AUDIT:
        general(op)


def only(application: str) -> Check:
    """Permits the application to write only its own names; else raises NameReserved."""

    def check(op: Op) -> None:
        if type(op) not in READS and owner_of_op(op) != application:
            own = reserved(application, "")
            raise NameReserved(f"{_name(op)!r:.80} is not a name of the application {application}: begin it with {own}")

    return check


def _refuse(op: Op, owner: str) -> NoReturn:
    if owner == AUDIT:
        why = "cannot be cleared" if type(op) is Clear else "is written only by the service"
        raise NameReserved(f"the audit log {why}")
    raise NameReserved(
        f"{_name(op)!r:.80} is reserved: names that begin with {RESERVED} belong to applications of the service; "
        "use another name"
    )


def _name(op: Op) -> str:
    return str(getattr(op, "queue", "") or op.key)  # type: ignore[union-attr]
