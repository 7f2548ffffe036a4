"""Who may write the names of applications: they themselves. Admins may look at them and clear them, which is audited;
everybody else may look. The audit log is written by the service alone, and cleared by nobody."""

from __future__ import annotations

from typing import NoReturn

from ..drivers.permitted import Check
from ..errors import NameReserved
from ..names import AUDIT, RESERVED, owner_of_op, reserved
from ..ops import Clear, Op, Read

SERVICE = "service"  # whose names are the service's own


def general(op: Op) -> None:
    """What the general API may do: write all names but the reserved ones; else NameReserved."""
    if type(op) is not Read and (owner := owner_of_op(op)):
        _refuse(op, owner)


def clearing(op: Op) -> None:
    """As `general`; and admins, who gave a reason, may clear what an application keeps."""
    if type(op) is not Clear or owner_of_op(op) == AUDIT:
        general(op)


def only(application: str) -> Check:
    """What the application may do: write its own names, and no others; else NameReserved."""

    def check(op: Op) -> None:
        if type(op) is not Read and owner_of_op(op) != application:
            own = reserved(application, "")
            raise NameReserved(f"{_name(op)!r:.80} is no name of the application {application}: begin it with {own}")

    return check


def _refuse(op: Op, owner: str) -> NoReturn:
    if owner == AUDIT:
        can_not = "cannot be cleared" if type(op) is Clear else "is written by the service, and by nobody else"
        raise NameReserved(f"the audit log {can_not}")
    raise NameReserved(
        f"{_name(op)!r:.80} is reserved: names that begin with {RESERVED} belong to applications of the service; "
        "use another name"
    )


def _name(op: Op) -> str:
    return str(getattr(op, "queue", "") or op.key)  # type: ignore[union-attr]
