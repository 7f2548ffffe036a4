"""/probe answers as blackbox_exporter does; where that is installed, both probe the same targets."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.apps.hooks import Answer, Hooks, hooks_aside
from tests.apps.operator import Operator, operating
from tests.apps.probes.sites import NameServer, ZoneServer, answering, counting_site, name_server
from tests.certificates import make_certificate, server_side
from tests.conftest import BLACKBOX_EXPORTER
from tests.service.serving import TOKENS, bearer, until

MODULES: dict[str, dict[str, Any]] = {
    "http_regex": {"expect": {"body": "fine"}},
    "http_404": {"expect": {"status": [404]}},
    "short": {"timeout": 0.5},
    "tcp_connect": {"prober": "tcp"},
    "http_tls": {},
    "tls_connect": {"prober": "tls"},
    "dns": {"prober": "dns", "query_name": "www.example.org"},
    "zone": {"prober": "dns", "query_name": "example.org", "query_type": "SOA"},
    "smtp": {"prober": "tcp", "timeout": 30, "expect": {"body": "^220 ([^ ]+) ESMTP (.+)$"}},
    "http_host": {"headers": {"Host": "localhost"}},
    "secret": {"headers": {"X-Key": "k3y-of-the-module"}},
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
  tls_connect: {prober: tcp, tcp: {tls: true, tls_config: {ca_file: CERTIFICATE}}}
  tls_any: {prober: tcp, tcp: {tls: true, tls_config: {insecure_skip_verify: true}}}
  dns: {prober: dns, dns: {query_name: www.example.org, query_type: A}}
  zone: {prober: dns, dns: {query_name: example.org, query_type: SOA}}
  smtp: {prober: tcp, timeout: 30s, tcp: {query_response: [{expect: "^220 ([^ ]+) ESMTP (.+)$"}]}}
  http_host: {prober: http, http: {headers: {Host: localhost}, tls_config: {ca_file: CERTIFICATE}}}
"""
MODIFIED = ("last-modified", "Wed, 21 Oct 2015 07:28:00 GMT")
# What both must measure alike; all others are times.
SAME = {
    "probe_success", "probe_failed_due_to_regex", "probe_http_content_length", "probe_http_redirects", "probe_http_ssl",
    "probe_http_last_modified_timestamp_seconds", "probe_http_status_code", "probe_http_uncompressed_body_length",
    "probe_http_version", "probe_ip_addr_hash", "probe_ip_protocol", "probe_dns_answer_rrs", "probe_dns_authority_rrs",
    "probe_dns_additional_rrs", "probe_dns_query_succeeded", "probe_dns_serial", "probe_ssl_earliest_cert_expiry",
    "probe_ssl_last_chain_expiry_timestamp_seconds", "probe_ssl_last_chain_info", "probe_tls_version_info",
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


def test_the_lengths_of_a_body_are_those_that_were_announced_and_sent(desk: Operator, site: Hooks) -> None:
    site.answers.append(Answer(body=b"x" * 400_000))
    found = probed(desk, site.url)
    assert (found["probe_http_content_length"], found["probe_http_uncompressed_body_length"]) == (400_000, 400_000)


def test_the_duration_has_no_wait_for_the_mutex(certificate: Path, site: Hooks) -> None:
    settings = {"guard_allow": ["127.0.0.0/8"], "backoff": [3.0], "jitter": 0.0, "lock_retries": 10}
    with operating("probes", settings) as desk, counting_site(pause=3600) as slow, ThreadPoolExecutor(2) as callers:
        first = callers.submit(probed, desk, slow.url("x"))
        until(lambda: slow.at_once["x"] == 1, 30)
        began = time.monotonic()
        second = callers.submit(probed, desk, slow.url("x"))
        until(lambda: desk.ask("/api/internal/pilot/probe-mutex/status")["backoff_attempts"], 30)
        slow.end()
        assert first.result()["probe_success"] == 1
        found = second.result()
        assert found["probe_duration_seconds"] <= time.monotonic() - began - 3.0  # the pause


def test_a_host_is_asked_for_at_another_place(desk: Operator, site: Hooks, certificate: Path) -> None:
    answer = desk.get("/probe", "write", target=site.url, hostname="shop.example")
    assert metrics(answer.text)["probe_success"] == 1
    assert site.received[0].headers["host"] == "shop.example"
    with hooks_aside(server_side(certificate)) as secure:  # whose certificate is that of localhost
        for target, module in (
            (f"https://127.0.0.1:{secure.port}/", "http_tls"),
            (f"127.0.0.1:{secure.port}", "tls_connect"),
        ):
            for hostname, success in (("localhost", 1), ("", 0), ("other.example", 0)):
                answer = desk.get("/probe", "write", target=target, module=module, hostname=hostname)
                assert metrics(answer.text)["probe_success"] == success, (target, hostname)
    refused = desk.get("/probe", "write", target=site.url, hostname="no host")
    assert (refused.status_code, "is not the name of a host" in refused.json()["detail"]) == (400, True)


def test_debug_explains_the_probe_to_people(desk: Operator, site: Hooks) -> None:
    site.answers.append(Answer(503))
    answer = desk.get("/probe", "write", target=site.url, module="secret", debug="true")
    assert answer.status_code == 200
    for part in ("Logs for the probe:", "status 503 is not 2xx", "Metrics that would have been returned:",
                 "probe_success 0.0", "Module configuration:", "X-Key"):  # fmt: skip
        assert part in answer.text
    assert "k3y-of-the-module" not in answer.text
    assert "Logs" not in desk.get("/probe", "write", target=site.url, debug="false").text


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
    ("http_2xx", "{url}", Answer(body=b"fine", headers=(MODIFIED,))),
    *(
        ("http_2xx", "{url}", Answer(headers=(("last-modified", text),)))
        for text in (
            "Wednesday, 21-Oct-15 07:28:00 GMT",
            "Wed Oct 21 07:28:00 2015",
            "Wed, 21 Oct 2015 07:28:00 +0200",
            "21 Oct 2015 07:28:00 GMT",
            "Wed, 1 Oct 2015 07:28:00 GMT",
            "Wed, 21 Oct 2015 07:28:00 CET",
            "soon",
        )
    ),
    ("http_2xx", "{url}", Answer(body=b"x" * 400_000)),  # more than is searched
    ("http_2xx", "{url}", Answer(404)),
    ("http_2xx", "{url}", Answer(500)),
    ("http_2xx", "{url}", Answer(301, (("location", "/there"),))),
    ("http_2xx", "{url}", Answer(302, (("location", ""),))),
    ("http_2xx", "{url}", Answer(302, (("location", "http://127.0.0.1:1/"),))),
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
        _compare(both[0], both[1], (module, place, answer))


def _of_theirs(address: str) -> Any:
    def ask(target: str, module: str) -> dict[str, float]:
        answer = httpx2.get(f"{address}/probe", params={"target": target, "module": module}, timeout=30)
        assert answer.status_code == 200, answer.text
        return metrics(answer.text)

    return ask


def _compare(theirs: dict[str, float], ours: dict[str, float], case: object) -> None:
    """Both have the same names with the same labels, and the same values but for times."""
    assert set(ours) == set(theirs), case
    for name, value in theirs.items():
        if name.partition("{")[0] in SAME:
            assert ours[name] == value, (case, name)


def test_both_say_the_same_of_a_certificate(desk: Operator, blackbox_exporter: str, certificate: Path) -> None:
    with hooks_aside(server_side(certificate)) as secure:
        for target, module in (
            (f"https://localhost:{secure.port}/", "http_tls"),
            (f"localhost:{secure.port}", "tls_connect"),
        ):
            theirs, ours = _of_theirs(blackbox_exporter)(target, module), probed(desk, target, module)
            assert ours["probe_success"] == 1
            assert any(name.startswith("probe_ssl_last_chain_info") for name in ours)
            _compare(theirs, ours, target)


@pytest.mark.parametrize("redirects", [1, 10, 11])
def test_both_follow_ten_redirects(desk: Operator, site: Hooks, blackbox_exporter: str, redirects: int) -> None:
    both = []
    for ask in (_of_theirs(blackbox_exporter), lambda target, module: probed(desk, target, module)):
        site.answers.clear()
        site.answers.extend([Answer(302, (("location", "/next"),), b"")] * redirects)
        both.append(ask(site.url, "http_2xx"))
    assert both[1]["probe_http_redirects"] == redirects
    _compare(both[0], both[1], redirects)


def test_both_say_the_same_of_a_name_server(desk: Operator, blackbox_exporter: str) -> None:
    cases = [("dns", NameServer(0, "192.0.2.7", "192.0.2.8")), ("dns", NameServer(3)), ("dns", None),
             ("zone", ZoneServer(2_024_010_199)), ("zone", NameServer(3)), ("zone", None)]  # fmt: skip
    for module, server in cases:
        with name_server(server) if server else nullcontext(1) as port:
            target = f"127.0.0.1:{port}"
            theirs, ours = _of_theirs(blackbox_exporter)(target, module), probed(desk, target, module)
            _compare(theirs, ours, (module, server))


def test_both_measure_a_body_without_a_length(desk: Operator, blackbox_exporter: str) -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
    with answering(chunked) as port:
        url = f"http://127.0.0.1:{port}/"
        theirs, ours = _of_theirs(blackbox_exporter)(url, "http_2xx"), probed(desk, url)
    assert (ours["probe_http_content_length"], ours["probe_http_uncompressed_body_length"]) == (-1, 11)
    _compare(theirs, ours, "chunked")


@pytest.mark.parametrize("open_ended", [False, True])
@pytest.mark.parametrize("head", [b"Content-Length: 500\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n5\r\n"])
def test_both_say_what_they_know_of_a_response_whose_body_never_ends(
    desk: Operator, blackbox_exporter: str, head: bytes, open_ended: bool
) -> None:
    """The connection is closed before, or nothing more comes until the timeout."""

    def begun(ask: Any) -> dict[str, float]:
        """Asked again where the timeout was over before the body began: the machine may be busy."""
        url, found = f"http://127.0.0.1:{port}/", dict[str, float]()
        for _ in range(20):
            found = ask(url, "short")
            if found["probe_http_uncompressed_body_length"] == 5:
                break
        return found

    with answering(b"HTTP/1.1 200 OK\r\n" + head + b"hello", open_ended=open_ended) as port:
        theirs = begun(_of_theirs(blackbox_exporter))
        ours = begun(lambda target, module: probed(desk, target, module))
    assert (ours["probe_success"], ours["probe_http_status_code"]) == (0, 200)
    _compare(theirs, ours, head)


def test_both_send_the_cookie_that_a_redirect_has_set(desk: Operator, site: Hooks, blackbox_exporter: str) -> None:
    """Many sites set a cookie and redirect to the same page, again and again until it is sent."""
    both = []
    for ask in (_of_theirs(blackbox_exporter), lambda target, module: probed(desk, target, module)):
        site.answers.extend([Answer(302, (("location", "/"), ("set-cookie", "seen=1; Path=/")), b"")])
        both.append(ask(site.url, "http_2xx"))
        assert site.received[-1].headers["cookie"] == "seen=1"
    _compare(both[0], both[1], "cookie")


def test_both_look_for_a_pattern_in_each_line_that_a_peer_sends(desk: Operator, blackbox_exporter: str) -> None:
    for sent, success in (
        (b"220 mail.example ESMTP Postfix\r\n", 1),
        (b"Hello\r\n220 mail.example ESMTP Postfix\r\nmore\r\n", 1),
        (b"not 220 mail.example ESMTP Postfix\r\n", 0),
    ):
        with answering(sent, at_once=True, open_ended=success == 1) as port:
            target = f"127.0.0.1:{port}"
            theirs, ours = _of_theirs(blackbox_exporter)(target, "smtp"), probed(desk, target, "smtp")
        assert (sent, ours["probe_success"]) == (sent, success)
        _compare(theirs, ours, sent)


def test_both_expect_the_certificate_of_the_host_that_a_header_names(
    desk: Operator, blackbox_exporter: str, certificate: Path
) -> None:
    with hooks_aside(server_side(certificate)) as secure:  # whose certificate is not that of the address
        url = f"https://127.0.0.1:{secure.port}/"
        theirs, ours = _of_theirs(blackbox_exporter)(url, "http_host"), probed(desk, url, "http_host")
        assert ours["probe_success"] == 1
        _compare(theirs, ours, url)
        query = {"target": url, "module": "http_host", "hostname": "shop.example"}
        refused = desk.get("/probe", "write", **query)
        assert (refused.status_code, "header Host" in refused.json()["detail"]) == (400, True)
        assert httpx2.get(f"{blackbox_exporter}/probe", params=query, timeout=30).status_code == 400


SUBJECTS = [
    "/C=DE/ST=Bayern/L=Ulm/O=Shop, Inc./OU=A/OU=B",
    "/O=Shop/ST=B/C=DE/L=Ulm/OU=y/postalCode=89073/street=Some Street 1/serialNumber=77",
    "/businessCategory=Private Organization/jurisdictionC=US/C=DE+O=Shop",
    "/O= #x \\ <a>; end /title=Dr/DC=example/DC=org/emailAddress=a@b.example/CN=first",
    f"/name={'n' * 200}/O=Münchner",
]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_both_write_the_name_of_a_certificate_alike(tmp_path: Path, blackbox_exporter: str, subject: str) -> None:
    """Dashboards join by the labels."""
    named = make_certificate(tmp_path, "localhost", subject)
    with hooks_aside(server_side(named)) as secure, operating("probes", _trusting(named)) as ours_alone:
        target = f"localhost:{secure.port}"
        theirs = _of_theirs(blackbox_exporter)(target, "tls_any")
        ours = probed(ours_alone, target, "tls_connect")
    assert _subject(ours) == _subject(theirs)


def _trusting(certificate: Path) -> dict[str, Any]:
    return {"guard_allow": ["127.0.0.0/8", "::1/128"], "ca_file": str(certificate)}


def _subject(samples: dict[str, float]) -> str:
    (found,) = [name for name in samples if name.startswith("probe_ssl_last_chain_info")]
    return found
