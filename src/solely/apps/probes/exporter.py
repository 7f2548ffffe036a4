"""/probe?target=&module=: one probe of any target, answered as blackbox_exporter does, so that its dashboards and
scrape configurations work. It takes the mutex of the target, too."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from starlette.responses import Response

from ... import Busy
from ...kit import BUSY, INVALID, WRITE, Body, Call, Problem, Route
from .checks import Outcome
from .model import ProbeResult, ProbeTarget
from .runtime import ProbesRuntime

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SCRAPE_TIMEOUT = "x-prometheus-scrape-timeout-seconds"  # the header in which Prometheus says how long it waits
_SPARE = 0.5  # seconds of that for the response: blackbox_exporter's timeout-offset
_HELP = {
    "probe_dns_lookup_time_seconds": "Returns the time taken for probe dns lookup in seconds",
    "probe_duration_seconds": "Returns how long the probe took to complete in seconds",
    "probe_failed_due_to_regex": "Indicates if probe failed due to regex",
    "probe_http_content_length": "Length of http content response",
    "probe_http_duration_seconds": "Duration of http request by phase, summed over all redirects",
    "probe_http_ssl": "Indicates if SSL was used for the final redirect",
    "probe_http_status_code": "Response HTTP status code",
    "probe_http_uncompressed_body_length": "Length of uncompressed response body",
    "probe_ip_protocol": "Specifies whether probe ip protocol is IP4 or IP6",
    "probe_ssl_earliest_cert_expiry": "Returns last SSL chain expiry in unixtime",
    "probe_success": "Displays whether or not the probe was a success",
}


class ProbeQuery(Body):
    """The target, a URL or host, or host:port; and the module that says how it is probed."""

    target: Annotated[str, msgspec.Meta(min_length=1, max_length=2048)]
    module: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] = "http_2xx"


def exposition(target: ProbeTarget, result: ProbeResult, outcome: Outcome) -> str:
    """The metrics of a probe, by the names of blackbox_exporter."""
    samples: list[tuple[str, str, float]] = [
        ("probe_dns_lookup_time_seconds", "", outcome.phases.get("resolve", 0.0)),
        ("probe_duration_seconds", "", result.seconds),
        ("probe_success", "", float(result.passed)),
    ]
    if target.kind != "dns":
        samples.append(("probe_failed_due_to_regex", "", float(outcome.failed_by_pattern)))
    if outcome.address:
        samples.append(("probe_ip_protocol", "", 6.0 if ":" in outcome.address else 4.0))
    if outcome.certificate_expires is not None:
        samples.append(("probe_ssl_earliest_cert_expiry", "", outcome.certificate_expires))
    if target.kind == "http":
        samples += _http(outcome)
    return "".join(_lines(samples))


def _http(outcome: Outcome) -> list[tuple[str, str, float]]:
    phases = outcome.phases or dict.fromkeys(("resolve", "connect", "tls", "processing", "transfer"), 0.0)
    length = float(outcome.length or 0)
    return [
        ("probe_http_content_length", "", length),
        *(("probe_http_duration_seconds", f'{{phase="{name}"}}', value) for name, value in phases.items()),
        ("probe_http_ssl", "", float(outcome.certificate_expires is not None)),
        ("probe_http_status_code", "", float(outcome.status or 0)),
        ("probe_http_uncompressed_body_length", "", length),
    ]


def _lines(samples: list[tuple[str, str, float]]) -> list[str]:
    lines, known = [], set[str]()
    for name, labels, value in sorted(samples, key=lambda each: each[0]):
        if name not in known:
            known.add(name)
            lines.append(f"# HELP {name} {_HELP[name]}\n# TYPE {name} gauge\n")
        lines.append(f"{name}{labels} {value!r}\n")
    return lines


class Exporter:
    """The handler of /probe."""

    def __init__(self, app: ProbesRuntime) -> None:
        self._app = app

    async def probe(self, call: Call[None, ProbeQuery]) -> Response:
        """Probe a target now, answered as blackbox_exporter does"""
        target = self._target(call.query, call.header(SCRAPE_TIMEOUT))
        began = time.perf_counter()
        result, outcome = await self._app.prober.probe(target)
        if result.skipped:  # no verdict: a failed scrape is what says so
            text = f"another probe of this target is running ({result.skipped}); try again"
            raise Busy(text, key=self._app.mutex.target_key(target.url), left=self._app.mutex.backoff(1))
        result = msgspec.structs.replace(result, seconds=time.perf_counter() - began)
        return Response(exposition(target, result, outcome), media_type=CONTENT_TYPE)

    def _target(self, query: ProbeQuery, scrape_timeout: str) -> ProbeTarget:
        """The target that is asked for; Problem if there is no such module."""
        module = self._app.settings.module(query.module)
        if module is None:
            raise Problem(INVALID, f"there is no module {query.module!r}; add it to the settings: [probes.modules]")
        try:
            patience = float(scrape_timeout) - _SPARE
        except ValueError:
            patience = module.timeout
        return module.target(query.target, min(module.timeout, max(patience, _SPARE)))

    def routes(self) -> list[Route]:
        """Its route. It makes the service call others, so that a token that may only read is not enough."""
        return [Route("GET", "/probe", WRITE, self.probe, media="text/plain", waits=True, refusals=(BUSY,))]
