"""What to install if a command needs a package that is missing."""

from __future__ import annotations

from ..errors import SolelyError, missing_extra


def missing(error: ImportError, what: str) -> ImportError:
    """MissingExtra, with the command to run, if a third-party module is missing; else the error itself."""
    if isinstance(error, SolelyError) or (error.name or "").startswith("solely"):
        return error
    return missing_extra(what, error.name, "service")
