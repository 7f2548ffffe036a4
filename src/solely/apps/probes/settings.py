"""The settings of the prober: the section [probes]. Invalid settings raise `InvalidInput` when read."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ... import InvalidInput
from ...kit import DAY, Timeout, check_network
from .model import KINDS, Expectations, Kind, Method, ProbeTarget, Texts

Keep = Annotated[float, msgspec.Meta(ge=3600.0, le=10 * 366 * 86_400.0)]


class ProbeModule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What /probe does with the target that it is given, as a module of blackbox_exporter."""

    prober: Kind = "http"
    timeout: Timeout = 10.0
    method: Method = "GET"
    headers: Texts = {}
    body: str = ""
    expect: Expectations = Expectations()
    query_name: str = ""
    query_type: str = "A"

    def check(self, what: str) -> None:
        """Raises InvalidInput, which shows no secret, if no target can be probed in this way."""
        if self.prober == "dns" and not self.query_name:
            raise InvalidInput(f"{what}: give query_name, the name that name servers are asked for")
        self.target("www.example.org" if self.prober in ("http", "dns") else "www.example.org:443", 10.0, what=what)

    def target(self, place: str, timeout: float, hostname: str = "", *, what: str = "") -> ProbeTarget:
        """The target at this place; InvalidInput if it cannot be probed. The host that is asked for there is
        `hostname`, or that of a header; the two must not differ."""
        header = next((value for name, value in self.headers.items() if name.lower() == "host"), "")
        if header and hostname not in ("", header):
            raise InvalidInput(f"hostname {hostname!r:.80}: the module has a header Host with another value")
        found = ProbeTarget(
            name="probe",
            url=self._url(place),
            timeout=timeout,
            method=self.method,
            headers=self.headers,
            body=self.body,
            expect=self.expect,
            hostname=hostname or header,
        )
        found.check(what)
        return found

    def without_secrets(self) -> ProbeModule:
        """As it is shown: without the values of headers, and without the body."""
        return msgspec.structs.replace(self, headers=dict.fromkeys(self.headers, "…"), body="…" if self.body else "")

    def _url(self, place: str) -> str:
        if self.prober == "dns":
            return f"dns://{place.removeprefix('dns://')}/{self.query_name}?type={self.query_type}"
        scheme = place.partition("://")[0] if "://" in place else ""
        if KINDS.get(scheme) == self.prober:
            return place
        if scheme:
            raise InvalidInput(f"target: a module of the prober {self.prober} cannot probe {scheme!r:.20}://")
        return f"{self.prober}://{place}"


BUILT_IN = {
    "http_2xx": ProbeModule(),
    "http_post_2xx": ProbeModule(method="POST"),
    "tcp_connect": ProbeModule(prober="tcp"),
    "tls_connect": ProbeModule(prober="tls"),
}


class ProbesSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is probed and how. Durations are seconds. Only public addresses are probed, except for those of the networks
    of `guard_allow`."""

    targets: tuple[ProbeTarget, ...] = ()
    modules: dict[str, ProbeModule] = {}
    guard_allow: tuple[str, ...] = ()
    ca_file: str = ""
    # Probes at once per worker: each has a connection, and a slow target uses one slot until its timeout.
    at_once: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 500
    # Those that callers ask for (/probe, run, login tests), which have slots of their own.
    on_demand_at_once: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    # Seconds until another replica may probe a target whose prober has died: the document's.
    lock_timeout: Annotated[float, msgspec.Meta(ge=1.0, le=3600.0)] = 60.0
    # Seconds to wait for a mutex that is held, the last for ever; and the share by which each varies: the document's.
    backoff: Annotated[tuple[float, ...], msgspec.Meta(min_length=1, max_length=20)] = (2.0, 5.0, 10.0)
    jitter: Annotated[float, msgspec.Meta(ge=0.0, le=0.9)] = 0.2
    lock_retries: Annotated[int, msgspec.Meta(ge=0, le=10)] = 1  # of a held mutex, before the probe is skipped
    keep_results: Keep = float(DAY)  # single results: what a page shows bar by bar
    keep_hours: Keep = 31.0 * DAY  # sums per hour: what 24 hours and 30 days are made of
    keep_days: Keep = 400.0 * DAY  # sums per day: what a year is made of

    def __post_init__(self) -> None:
        for network in self.guard_allow:
            check_network("guard_allow:", network)
        names = [target.name for target in self.targets]
        if double := sorted({name for name in names if names.count(name) > 1}):
            raise InvalidInput(f"targets have the same name: {', '.join(double)}; give each its own")
        for target in self.targets:
            target.check()
        for name, module in self.modules.items():
            module.check(f"module {name!r}")
        if not all(0.0 < pause <= 600.0 for pause in self.backoff):
            raise InvalidInput("backoff: each pause must be between 0 and 600 seconds")

    def module(self, name: str) -> ProbeModule | None:
        """The module of this name, of the settings or built in; None if there is none."""
        return self.modules.get(name, BUILT_IN.get(name))
