"""The settings of jobs: the part `jobs` of the section [repos]."""

from __future__ import annotations

import msgspec


class JobSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How jobs are performed. Without a command, the jobs of that kind are not performed."""
