"""What a server reports about itself: may it be used, and what should its owner know?"""

from __future__ import annotations

from typing import Any

from hiredis import ReplyError

from ...errors import StoreMisconfigured
from ...logs import get_logger
from ...model import Finding
from .. import NotPrimary
from .faults import fault
from .settings import RedisSettings, ServerAddress

log = get_logger()

Info = dict[str, str]

OLDEST = 7  # the first Redis whose SET takes NX and GET together
SKEW = 1.0  # seconds between two clocks that NTP keeps: usually milliseconds, so one second is a broken clock
AHEAD = 86_400.0  # seconds that fences may be ahead of the clock: more is a clock that was set back, not a leap

_warned: set[str] = set()


def read_info(answer: Any) -> Info:
    """The fields of an INFO answer; none if this user has no permission. Raises any other error of the server."""
    if isinstance(answer, ReplyError):
        if str(answer).startswith(("NOPERM", "ERR unknown command")):
            return {}
        raise fault(answer)
    lines = (line.partition(":") for line in answer.decode("utf-8", "replace").splitlines() if ":" in line)
    return {name: value for name, _, value in lines}


def admit(settings: RedisSettings, address: ServerAddress, info: Info) -> None:
    """Returns if this server may be used; NotPrimary for a replica, StoreMisconfigured if it may evict our keys."""
    if not info:
        warn_once(f"{address}: INFO is forbidden, so nobody knows whether this server may evict our keys")
        return
    if info.get("role") == "slave":
        raise NotPrimary(f"{address} is a replica; give the address of the primary, or use redis+sentinel://")
    if info.get("loading") == "1":
        raise NotPrimary(f"{address} is starting and still loads its data")
    version = info.get("redis_version", "7")  # what Valkey is compatible with, too
    if int(version.partition(".")[0]) < OLDEST:
        raise StoreMisconfigured(f"{address} is Redis {version}; it must be {OLDEST} or later (SET with NX and GET)")
    policy = evicts(info)
    if policy and settings.eviction_warns:
        warn_once(f"{address}: {policy}")
    elif policy:
        raise StoreMisconfigured(f"{address}: {policy} Or accept it with ?eviction=warn in the URL.")


def evicts(info: Info) -> str:
    """Why this server may evict our keys and what to do, or "" if it may not."""
    policy = info.get("maxmemory_policy", "noeviction")
    if policy == "noeviction" or info.get("maxmemory", "0") == "0":
        return ""
    return (
        f"maxmemory-policy is {policy}: under memory pressure the server may drop a lock that is held or a "
        "mark that was new. Set it with: CONFIG SET maxmemory-policy noeviction."
    )


def warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        log.warning(text)


def findings(address: ServerAddress, info: Info, clock: Any, fence: int, *, local: float, took: float) -> list[Finding]:
    """What check() says of one server that answered."""
    at = str(address)
    product = "Valkey" if info.get("server_name") == "valkey" else "Redis"
    version = info.get("valkey_version") or info.get("redis_version", "of unknown version")
    found = [Finding("ok", at, f"{product} {version} answers in {took * 1000:.2f} ms")]
    if isinstance(clock, ReplyError):
        found.append(Finding("warning", at, f"the clock is not readable: {clock}"))
    else:
        found += _clock_findings(at, int(clock[0]) + int(clock[1]) / 1_000_000, fence / 1_000_000, local)
    if info:
        found += _memory_findings(at, info)
        found += _safety_findings(at, info)
    else:
        found.append(Finding("warning", at, "INFO is forbidden: memory policy, persistence and replicas are unknown"))
    return found


def _clock_findings(at: str, clock: float, fence: float, local: float) -> list[Finding]:
    skew = clock - local
    found = [Finding("ok" if abs(skew) <= SKEW else "warning", at, f"its clock differs from ours by {skew:+.3f} s")]
    if fence > clock + AHEAD:
        text = (
            f"fences are {(fence - clock) / 86_400:.1f} days ahead of the clock, which was set back: they still grow, "
            "but would fall back if all data were lost before the clock has caught up"
        )
        found.append(Finding("warning", at, text))
    return found


def _memory_findings(at: str, info: Info) -> list[Finding]:
    policy = evicts(info)
    if policy:
        return [Finding("error", at, policy)]
    limit = info.get("maxmemory_human", "0B") if info.get("maxmemory", "0") != "0" else "none"
    return [Finding("ok", at, f"{info.get('used_memory_human', '?')} used, maxmemory {limit}, nothing is evicted")]


def _safety_findings(at: str, info: Info) -> list[Finding]:
    found = []
    if info.get("aof_enabled") == "1":
        found.append(Finding("ok", at, "append-only file: holds and marks survive a restart (see appendfsync)"))
    else:
        text = "no append-only file: holds and marks since the last snapshot are lost in a crash; set appendonly yes"
        found.append(Finding("warning", at, text))
    replicas = int(info.get("connected_slaves", "0"))
    if replicas:
        text = (
            f"{replicas} replica(s), updated after the answer: a failover may lose the last holds, marks and results; "
            "fences still grow, so guard what must not be done twice with the fence"
        )
        found.append(Finding("ok", at, text))
    return found
