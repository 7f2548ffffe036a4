"""/probe answers as blackbox_exporter does; where that is installed, both probe the same targets."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.apps.hooks import Answer, Hooks, hooks_aside
from tests.apps.operator import Operator, operating
from tests.apps.probes.sites import counting_site
from tests.certificates import make_certificate, server_side
from tests.conftest import BLACKBOX_EXPORTER
from tests.service.serving import TOKENS, bearer, until

MODULES: dict[str, dict[str, Any]] = {
    "http_regex": {"expect": {"body": "fine"}},
    "http_404": {"expect": {"status": [404]}},
    "short": {"timeout": 0.5},
    "tcp_connect": {"prober": "tcp"},
    "http_tls": {},
}
# The same, as blackbox_exporter reads them.
CONFIGURATION = """
modules:
  http_2xx: {prober: http}
  http_post_2xx: {prober: http, http: {method: POST}}
  http_regex: {prober: http, http: {fail_if_body_not_matches_regexp: [fine]}}
  http_404: {prober: http, http: {valid_status_codes: [404]}}
  short: {prober: http, timeout: 500ms}
  tcp_connect: {prober: tcp}
  http_tls: {prober: http, http: {tls_config: {ca_file: CERTIFICATE}}}
"""
NAMED = {  # by the issue: those that dashboards use
    "probe_success", "probe_duration_seconds", "probe_http_status_code", "probe_http_duration_seconds",
}  # fmt: skip


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("certificate"), "localhost")


@pytest.fixture(scope="module")
def desk(certificate: Path) -> Iterator[Operator]:
    allowed = {"guard_allow": ["127.0.0.0/8", "::1/128"], "ca_file": str(certificate)}
    settings = {**allowed, "modules": MODULES, "backoff": [0.05], "lock_retries": 1}
    with operating("probes", settings) as it:
        yield it


@pytest.fixture
def site() -> Iterator[Hooks]:
    with hooks_aside() as it:
        yield it


def metrics(text: str) -> dict[str, float]:
    """The samples by name and labels."""
    found = re.findall(r"^(\w+(?:\{.*\})?) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def names(samples: dict[str, float]) -> set[str]:
    return {each.partition("{")[0] for each in samples}


def probed(desk: Operator, target: str, module: str = "http_2xx") -> dict[str, float]:
    answer = desk.get("/probe", "write", target=target, module=module)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return metrics(answer.text)


def test_a_probe_is_answered_with_the_metrics_of_its_kind(desk: Operator, site: Hooks) -> None:
    found = probed(desk, site.url)
    assert found["probe_success"] == 1
    assert found["probe_http_status_code"] == 200
    assert found["probe_duration_seconds"] > 0
    assert {each for each in found if each.startswith("probe_http_duration")} == {
        f'probe_http_duration_seconds{{phase="{phase}"}}'
        for phase in ("resolve", "connect", "tls", "processing", "transfer")
    }
    tcp = probed(desk, f"127.0.0.1:{site.port}", "tcp_connect")
    assert tcp["probe_success"] == 1
    assert not {each for each in tcp if each.startswith("probe_http")}


def test_a_failed_probe_is_a_verdict_and_no_error(desk: Operator, site: Hooks) -> None:
    site.answers.append(Answer(500))
    found = probed(desk, site.url)
    assert (found["probe_success"], found["probe_http_status_code"]) == (0, 500)
    refused = probed(desk, "127.0.0.1:1", "tcp_connect")
    assert refused["probe_success"] == 0


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"target": "http://127.0.0.1/", "module": "icmp"}, "there is no module 'icmp'"),
        ({"target": "tcp://127.0.0.1:1"}, "a module of the prober http cannot probe 'tcp'://"),
        ({"target": "127.0.0.1", "module": "tcp_connect"}, "tcp:// needs a port"),
        ({"module": "http_2xx"}, "target"),
    ],
)
def test_an_invalid_query_is_refused_with_400(desk: Operator, query: dict[str, str], says: str) -> None:
    answer = desk.get("/probe", "write", **query)
    assert answer.status_code == 400
    assert says in answer.json()["detail"]


def test_a_token_that_may_only_read_cannot_make_the_service_call_others(desk: Operator, site: Hooks) -> None:
    assert desk.get("/probe", "read", target=site.url).status_code == 403
    assert site.connections == 0


def test_the_timeout_of_the_scrape_bounds_the_probe(desk: Operator, site: Hooks) -> None:
    site.answers.append(Answer(how="hang"))
    headers = {"x-prometheus-scrape-timeout-seconds": "1"}
    answer = desk.service.get("/probe", params={"target": site.url}, headers=headers | bearer(TOKENS["write"]))
    assert metrics(answer.text)["probe_success"] == 0


def test_a_probe_of_a_target_that_is_being_probed_gives_no_verdict(desk: Operator) -> None:
    with counting_site(pause=3600) as slow:
        url = slow.url("x")
        with pytest.raises(httpx2.ReadTimeout):
            desk.service.get("/probe", params={"target": url}, headers=bearer(TOKENS["write"]), timeout=0.5)
        until(lambda: slow.at_once["x"] == 1, 20)
        answer = desk.get("/probe", "write", target=url)
        assert answer.status_code == 409
        assert "another probe of this target is running (locked)" in answer.json()["detail"]
        assert slow.most["x"] == 1


# -- the real one


@pytest.fixture(scope="module")
def blackbox_exporter(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[str]:
    """The address of a running blackbox_exporter; tests that need it are not collected where there is none."""
    folder = tmp_path_factory.mktemp("blackbox")
    (folder / "blackbox.yml").write_text(CONFIGURATION.replace("CERTIFICATE", str(certificate)))
    port = _free_port()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(BLACKBOX_EXPORTER), f"--config.file={folder / 'blackbox.yml'}",
             f"--web.listen-address=127.0.0.1:{port}"],
            stdout=log, stderr=log,
        )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        until(lambda: _answers(address), 30)
        yield address
    finally:
        process.kill()
        process.wait(20)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _answers(address: str) -> bool:
    try:
        return httpx2.get(f"{address}/-/healthy", timeout=5).status_code == 200
    except httpx2.TransportError:
        return False


CASES: list[tuple[str, str, Answer | None]] = [
    ("http_2xx", "{url}", Answer(body=b"fine")),
    ("http_2xx", "{host}", Answer(204)),  # without a scheme
    ("http_2xx", "{url}", Answer(404)),
    ("http_2xx", "{url}", Answer(500)),
    ("http_2xx", "{url}", Answer(301, (("location", "/there"),))),
    ("http_post_2xx", "{url}", Answer(201)),
    ("http_regex", "{url}", Answer(body=b"all is fine here")),
    ("http_regex", "{url}", Answer(body=b"broken")),
    ("http_404", "{url}", Answer(404)),
    ("http_404", "{url}", Answer(200)),
    ("short", "{url}", Answer(how="hang")),
    ("http_2xx", "{url}", Answer(how="drop")),
    ("http_2xx", "http://127.0.0.1:1/", None),
    ("http_2xx", "http://no-such-host.invalid/", None),
    ("tcp_connect", "{host}", None),
    ("short", "https://localhost:{port}/", None),  # which speaks no TLS
    ("tcp_connect", "127.0.0.1:1", None),
]


def test_both_give_the_same_verdicts_and_names(desk: Operator, site: Hooks, blackbox_exporter: str) -> None:
    for module, place, answer in CASES:
        target = place.format(url=site.url, host=f"127.0.0.1:{site.port}", port=site.port)
        both = []
        for ask in (_of_theirs(blackbox_exporter), lambda target, module: probed(desk, target, module)):
            site.answers.clear()
            if answer is not None:
                site.answers.append(answer)
            both.append(ask(target, module))
        theirs, ours = both
        case = (module, place, answer)
        assert ours["probe_success"] == theirs["probe_success"], case
        assert ours.get("probe_http_status_code") == theirs.get("probe_http_status_code"), case
        assert ours.get("probe_failed_due_to_regex") == theirs.get("probe_failed_due_to_regex"), case
        assert names(ours) <= names(theirs) | {"probe_ip_protocol"}, case
        if place == "{url}":
            assert names(ours) >= NAMED, case
            assert {each for each in ours if "phase" in each} == {each for each in theirs if "phase" in each}, case


def _of_theirs(address: str) -> Any:
    def ask(target: str, module: str) -> dict[str, float]:
        answer = httpx2.get(f"{address}/probe", params={"target": target, "module": module}, timeout=30)
        assert answer.status_code == 200, answer.text
        return metrics(answer.text)

    return ask


def test_both_say_when_a_certificate_ends(desk: Operator, blackbox_exporter: str, certificate: Path) -> None:
    with hooks_aside(server_side(certificate)) as secure:
        url = f"https://localhost:{secure.port}/"
        theirs, ours = _of_theirs(blackbox_exporter)(url, "http_tls"), probed(desk, url, "http_tls")
    for name in ("probe_success", "probe_http_ssl", "probe_ssl_earliest_cert_expiry"):
        assert ours[name] == theirs[name], name
    assert names(ours) <= names(theirs)
