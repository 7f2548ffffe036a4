"""/probe?target=&module=: one probe of any target, answered as blackbox_exporter does, so that its dashboards and
scrape configurations work. It takes the mutex of the target, too."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated

import msgspec
from starlette.responses import Response

from ... import Busy
from ...kit import BUSY as IN_USE
from ...kit import INVALID, TOO_MANY, WRITE, Body, Call, PeerTls, Problem, Route, sanitized
from .checks import PHASES, DnsSections, Outcome
from .model import BUSY, LOCKED, LOST, ProbeResult, ProbeTarget
from .runtime import ProbesRuntime
from .settings import ProbeModule

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SCRAPE_TIMEOUT = "x-prometheus-scrape-timeout-seconds"  # the header in which Prometheus says how long it waits
_SPARE = 0.5  # seconds of that for the response: blackbox_exporter's timeout-offset
_HELP = {
    "probe_dns_additional_rrs": "Returns number of entries in the additional resource record list",
    "probe_dns_answer_rrs": "Returns number of entries in the answer resource record list",
    "probe_dns_authority_rrs": "Returns number of entries in the authority resource record list",
    "probe_dns_duration_seconds": "Duration of DNS request by phase",
    "probe_dns_lookup_time_seconds": "Returns the time taken for probe dns lookup in seconds",
    "probe_dns_query_succeeded": "Displays whether or not the query was executed successfully",
    "probe_dns_serial": "Returns the serial number of the zone",
    "probe_duration_seconds": "Returns how long the probe took to complete in seconds",
    "probe_failed_due_to_regex": "Indicates if probe failed due to regex",
    "probe_http_content_length": "Length of http content response",
    "probe_http_duration_seconds": "Duration of http request by phase, summed over all redirects",
    "probe_http_last_modified_timestamp_seconds": "Returns the Last-Modified HTTP response header in unixtime",
    "probe_http_redirects": "The number of redirects",
    "probe_http_ssl": "Indicates if SSL was used for the final redirect",
    "probe_http_status_code": "Response HTTP status code",
    "probe_http_uncompressed_body_length": "Length of uncompressed response body",
    "probe_http_version": "Returns the version of HTTP of the probe response",
    "probe_ip_addr_hash": "Specifies the hash of IP address. It's useful to detect if the IP address changes.",
    "probe_ip_protocol": "Specifies whether probe ip protocol is IP4 or IP6",
    "probe_ssl_earliest_cert_expiry": "Returns last SSL chain expiry in unixtime",
    "probe_ssl_last_chain_expiry_timestamp_seconds": "Returns last SSL chain expiry in timestamp",
    "probe_ssl_last_chain_info": "Contains SSL leaf certificate information",
    "probe_success": "Displays whether or not the probe was a success",
    "probe_tls_version_info": "Returns the TLS version used or NaN when unknown",
}
_DNS_PHASES = {"resolve": "resolve", "connect": "connect", "request": "processing"}  # theirs → ours
Sample = tuple[str, str, float]  # a name, its labels, and the value


class ProbeQuery(Body):
    """The target, a URL or host, or host:port; and the module that says how it is probed. `hostname` is the host that
    is asked for at that place, and whose certificate is expected. `debug=true` explains the probe, for people."""

    target: Annotated[str, msgspec.Meta(min_length=1, max_length=2048)]
    module: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] = "http_2xx"
    hostname: Annotated[str, msgspec.Meta(max_length=253)] = ""
    debug: Annotated[str, msgspec.Meta(max_length=10)] = ""


def exposition(target: ProbeTarget, result: ProbeResult, outcome: Outcome) -> str:
    """The metrics of a probe, by the names and labels of blackbox_exporter."""
    samples: list[Sample] = [
        ("probe_dns_lookup_time_seconds", "", outcome.phases.get("resolve", 0.0)),
        ("probe_duration_seconds", "", result.seconds),
        ("probe_success", "", float(result.passed)),
        ("probe_ip_addr_hash", "", float(_hash(outcome.address))),
        ("probe_ip_protocol", "", (6.0 if ":" in outcome.address else 4.0) if outcome.address else 0.0),
        *(_tls(outcome.tls) if outcome.tls else ()),
    ]
    if target.kind == "dns":
        samples += _dns(outcome)
    else:
        samples.append(("probe_failed_due_to_regex", "", float(outcome.failed_by_pattern)))
    if target.kind == "http":
        samples += _http(outcome)
    return "".join(_lines(samples))


def _http(outcome: Outcome) -> list[Sample]:
    phases = {name: outcome.phases.get(name, 0.0) for name in (PHASES if outcome.address else PHASES[:1])}
    modified = outcome.last_modified
    return [
        ("probe_http_content_length", "", float(outcome.content_length)),
        *(("probe_http_duration_seconds", _labels(phase=name), value) for name, value in phases.items()),
        *([] if modified is None else [("probe_http_last_modified_timestamp_seconds", "", modified)]),
        ("probe_http_redirects", "", float(outcome.redirects)),
        ("probe_http_ssl", "", float(outcome.tls is not None)),
        ("probe_http_status_code", "", float(outcome.status or 0)),
        ("probe_http_uncompressed_body_length", "", float(outcome.length or 0)),
        ("probe_http_version", "", float(outcome.version or 0)),
    ]


def _tls(peer: PeerTls) -> list[Sample]:
    leaf = _labels(
        fingerprint_sha256=peer.fingerprint,
        issuer=peer.issuer,
        subject=peer.subject,
        subjectalternative=",".join(peer.alternatives),
    )
    return [
        ("probe_ssl_earliest_cert_expiry", "", peer.earliest),
        ("probe_ssl_last_chain_expiry_timestamp_seconds", "", peer.chain_expires),
        ("probe_ssl_last_chain_info", leaf, 1.0),
        ("probe_tls_version_info", _labels(version=peer.version), 1.0),
    ]


def _dns(outcome: Outcome) -> list[Sample]:
    found = outcome.sections or DnsSections()
    return [
        ("probe_dns_additional_rrs", "", float(found.additional)),
        ("probe_dns_answer_rrs", "", float(found.answer)),
        ("probe_dns_authority_rrs", "", float(found.authority)),
        *(
            ("probe_dns_duration_seconds", _labels(phase=theirs), outcome.phases.get(ours, 0.0))
            for theirs, ours in _DNS_PHASES.items()
        ),
        ("probe_dns_query_succeeded", "", float(outcome.sections is not None)),
        *([] if outcome.serial is None else [("probe_dns_serial", "", float(outcome.serial))]),
    ]


def _hash(address: str) -> int:
    """The 32-bit FNV-1a hash of the address, as blackbox_exporter has it; 0 if there is none."""
    if not address:
        return 0
    found = 2_166_136_261
    for byte in ip_address(address.partition("%")[0]).packed:
        found = (found ^ byte) * 16_777_619 & 0xFFFFFFFF
    return found


def _labels(**values: str) -> str:
    """The labels of a sample: a certificate may have any text in it."""
    escaped = {name: _escaped(value) for name, value in values.items()}
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _lines(samples: list[Sample]) -> list[str]:
    lines, known = [], set[str]()
    for name, labels, value in sorted(samples):
        if name not in known:
            known.add(name)
            lines.append(f"# HELP {name} {_HELP[name]}\n# TYPE {name} gauge\n")
        lines.append(f"{name}{labels} {value!r}\n")
    return lines


def _explained(module: ProbeModule, target: ProbeTarget, outcome: Outcome, text: str) -> str:
    """The probe for people, in the three parts of blackbox_exporter."""
    facts = {
        "target": sanitized(target.url),
        "address": outcome.address or "unknown",
        "phases": ", ".join(f"{name} {seconds:.6f} s" for name, seconds in outcome.phases.items()),
        "status": outcome.status or "none",
        "result": outcome.error or "passed",
    }
    logs = "".join(f"{name}: {value}\n" for name, value in facts.items())
    shown = msgspec.json.format(msgspec.json.encode(module.without_secrets()), indent=2).decode()
    return (
        f"Logs for the probe:\n{logs}\n\n\nMetrics that would have been returned:\n{text}\n\n\n"
        f"Module configuration:\n{shown}\n"
    )


class Exporter:
    """The handler of /probe."""

    def __init__(self, app: ProbesRuntime) -> None:
        self._app = app

    async def probe(self, call: Call[None, ProbeQuery]) -> Response:
        """Probe a target now, answered as blackbox_exporter does"""
        module = self._module(call.query.module)
        target = _target(module, call.query, call.header(SCRAPE_TIMEOUT))
        result, outcome = await self._app.on_demand.probe(target)
        if result.skipped == BUSY:
            most = self._app.settings.on_demand_at_once
            raise Problem(TOO_MANY, f"on_demand_at_once={most} probes are running for callers; try again")
        if result.skipped in (LOCKED, LOST):  # no verdict: a failed scrape is what says so
            text = f"another probe of this target is running ({result.skipped}); try again"
            raise Busy(text, key=self._app.mutex.target_key(target.url), left=self._app.mutex.backoff(1))
        text = exposition(target, result, outcome)
        explained = _explained(module, target, outcome, text) if call.query.debug == "true" else text
        return Response(explained, media_type=CONTENT_TYPE)

    def _module(self, name: str) -> ProbeModule:
        """The module of this name; Problem if there is none."""
        module = self._app.settings.module(name)
        if module is None:
            raise Problem(INVALID, f"there is no module {name!r}; add it to the settings: [probes.modules]")
        return module

    def routes(self) -> list[Route]:
        """Its route. It makes the service call others, so that a token that may only read is not enough."""
        return [Route("GET", "/probe", WRITE, self.probe, media="text/plain", waits=True, refusals=(IN_USE, TOO_MANY))]


def _target(module: ProbeModule, query: ProbeQuery, scrape_timeout: str) -> ProbeTarget:
    """The target that is asked for; InvalidInput if it cannot be probed."""
    try:
        patience = float(scrape_timeout) - _SPARE
    except ValueError:
        patience = module.timeout
    return module.target(query.target, min(module.timeout, max(patience, _SPARE)), query.hostname)
