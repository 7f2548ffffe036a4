"""solely hosts release: releases all that a host holds, at a running service."""

from __future__ import annotations

from .. import host_acts
from .acts import act_group

hosts = act_group("hosts", host_acts)
