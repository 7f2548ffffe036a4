"""Whose file it is, and our tables in it: made once, and updated at each new boot. Every function works on a connection
that is given, be it our own or, inside a transaction, the caller's; none begins or ends a transaction."""

from __future__ import annotations

from ...errors import StoreMisconfigured
from .clock import Readings
from .fences import Execute
from .statements import SCHEMA, SQL

APPLICATION = 0x534F4C59  # "SOLY" in the header of a file that is ours alone: no other program's is taken for a store
VERSION = 3


def is_there(execute: Execute, path: str, shared: bool) -> bool:
    """True if our tables are there, False if they may be made; else StoreMisconfigured.

    A shared file is known by our table alone: its header belongs to the other program.
    """
    if shared:
        if execute(SQL["is_there"]).fetchone() is None:
            return False
        (version,) = execute(SQL["version"]).fetchone()
    else:
        (application,) = execute("PRAGMA application_id").fetchone()
        (version,) = execute("PRAGMA user_version").fetchone()
        if application != APPLICATION:
            if application or execute(SQL["has_any"]).fetchone():
                raise StoreMisconfigured(
                    f"{path} is a database of another program; give the path of a new file, or add ?shared=true to the"
                    " URL to keep Solely's tables beside the others in it"
                )
            return False
    if version != VERSION:
        cure = "upgrade Solely" if version > VERSION else "move it away: it was made before the first release"
        raise StoreMisconfigured(f"the SQLite store {path} has schema {version}, not {VERSION}; {cure}")
    return True


def create(execute: Execute, readings: Readings, shared: bool) -> None:
    """Makes our tables, inside a transaction; in a file that is ours alone it also says so in the header."""
    for statement in SCHEMA.split(";\n"):
        execute(statement)
    born = readings.wall()
    execute(SQL["first_boot"], (VERSION, readings.boot_id, born - _since_boot(readings), born, born))
    if not shared:
        execute(f"PRAGMA application_id = {APPLICATION}")
        execute(f"PRAGMA user_version = {VERSION}")


def known_base(execute: Execute, readings: Readings) -> int | None:
    """The base of this boot's fences; None if the file does not know this boot."""
    boot_id, base, _, _ = execute(SQL["meta"]).fetchone()
    return int(base) if boot_id == readings.boot_id else None


def base_of_boot(execute: Execute, readings: Readings) -> int:
    """The base of this boot's fences, inside a transaction; what another boot left is voided, once."""
    known = known_base(execute, readings)
    if known is not None:
        return known
    fence = int(execute(SQL["meta"]).fetchone()[2])
    first = max(readings.wall(), fence + 1)
    base = first - _since_boot(readings)
    _void(execute)
    execute(SQL["next_boot"], (readings.boot_id, base, first))
    return base


def _since_boot(readings: Readings) -> int:
    return (readings.wall if readings.tick is None else readings.lease)()


def _void(execute: Execute) -> None:
    """Leases do not outlive a boot; marks, results, watermarks and items do."""
    (last,) = execute(SQL["last_item"]).fetchone()
    if last is not None:
        execute(SQL["void_items"], (last, last))
    for name in ("void_free", "void_held", "void_done"):
        execute(SQL[name])
