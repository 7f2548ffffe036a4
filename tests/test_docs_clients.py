"""What the docs have people write for other programs (Alertmanager, Prometheus, a cluster) and into an environment: a
request as that program would send it gets what the page promises."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import yaml  # type: ignore[import-untyped]

from solely import Client
from solely.cli.program import perform
from tests.apps.probes.sites import counting_site
from tests.conftest import STORES
from tests.service.serving import LINES, TOKENS, Process, bearer, until
from tests.test_deploy import DEPLOY, documents
from tests.test_docs_settings import PAGES, ROOT, SHOWN

NAME = "solely.example.org"
LABELS = {"alertname": "Disk full", "severity": "critical", "instance": "db-1"}


class Service:
    """A service that is called by the name of the docs."""

    def __init__(self, process: Process, name: str = NAME) -> None:
        self.http = httpx2.Client(base_url=process.address(), timeout=60.0, headers={"host": f"{name}:8765"})


@pytest.fixture
def service(tmp_path: Path) -> Iterator[httpx2.Client]:
    environ = {"SOLELY_TOKENS": ",".join(LINES), "SOLELY_ALLOWED_HOSTS": NAME, "SOLELY_URL": "memory://"}
    environ["SOLELY_PROBES_GUARD_ALLOW"] = "127.0.0.0/8"
    with Process(tmp_path, **environ) as process, Service(process).http as http:
        until(lambda: http.get("/readyz").status_code == 200)
        yield http


def example(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(SHOWN[name])
    return found


def scope_of(credentials: str) -> str:
    """The scope of the token that a page asks for."""
    (scope,) = re.findall(r"<a token with the scope (\w+)>", credentials)
    return str(scope)


# -- one test for each example


def test_alertmanager_posts_its_groups(service: httpx2.Client) -> None:
    (receiver,) = example("alerts.md-yaml-1")["receivers"]
    (config,) = receiver["webhook_configs"]
    url, scope = urlsplit(config["url"]), scope_of(config["http_config"]["authorization"]["credentials"])
    assert url.netloc == f"{NAME}:8765"
    alerts = [{"status": "firing", "labels": {**LABELS, "n": str(n)}} for n in range(config["max_alerts"])]
    group = {"version": "4", "receiver": receiver["name"], "externalURL": "http://am.example.org", "alerts": alerts}
    for headers, status in (({}, 401), (bearer(TOKENS["read"]), 403)):
        assert service.post(url.path, json=group, headers=headers).status_code == status
    first = service.post(url.path, json=group, headers=bearer(TOKENS[scope]))
    assert first.status_code == 200
    assert len(first.json()["alerts"]) == config["max_alerts"]
    assert config["send_resolved"]
    resolved = {**group, "alerts": [{**each, "status": "resolved"} for each in alerts[1:]]}
    assert service.post(url.path, json=resolved, headers=bearer(TOKENS[scope])).status_code == 200
    (firing,) = service.get("/api/v2/alerts", headers=bearer(TOKENS["read"])).json()
    assert firing["labels"]["n"] == "0"


def test_prometheus_posts_its_alerts(service: httpx2.Client) -> None:
    (manager,) = example("alerts.md-yaml-2")["alerting"]["alertmanagers"]
    scope = scope_of(manager["authorization"]["credentials"])
    assert manager["static_configs"] == [{"targets": [f"{NAME}:8765"]}]
    alerts = [{"labels": LABELS, "generatorURL": "http://prometheus.example.org/graph"}]
    assert service.post("/api/v2/alerts", json=alerts, headers=bearer(TOKENS["read"])).status_code == 403
    assert service.post("/api/v2/alerts", json=alerts, headers=bearer(TOKENS[scope])).status_code == 200
    firing = service.get("/api/v2/alerts", headers=bearer(TOKENS["read"])).json()
    assert [each["labels"]["alertname"] for each in firing] == ["Disk full"]


def test_a_client_of_pagerduty_enqueues_events(service: httpx2.Client) -> None:
    (receiver,) = example("alerts.md-yaml-3")["receivers"]
    (config,) = receiver["pagerduty_configs"]
    payload = {"summary": "Disk full", "severity": "critical", "source": "db-1"}
    event = {"event_action": "trigger", "dedup_key": "disk", "payload": payload}
    url, scope = urlsplit(config["url"]), scope_of(config["routing_key"])
    assert url.netloc == f"{NAME}:8765"
    refused = service.post(url.path, json={**event, "routing_key": TOKENS["read"]})
    assert 400 <= refused.status_code < 500
    answer = service.post(url.path, json={**event, "routing_key": TOKENS[scope]})
    assert (answer.status_code, answer.json()["status"]) == (202, "success")


def test_prometheus_scrapes_the_service(service: httpx2.Client) -> None:
    (job,) = example("dashboard.md-yaml-1")["scrape_configs"]
    assert job["authorization"].keys() == {"credentials_file"}
    path = job.get("metrics_path", "/metrics")
    assert service.get(path).status_code == 401
    answer = service.get(path, headers=bearer(TOKENS["read"]))
    assert answer.status_code == 200
    assert "solely_" in answer.text


def test_prometheus_scrapes_targets_by_probing_them(service: httpx2.Client) -> None:
    """As it relabels: the address becomes the parameter, and then the service."""
    (job,) = example("probes.md-yaml-1")["scrape_configs"]
    first, _, last = job["relabel_configs"]
    assert first["target_label"] == "__param_target"
    assert last["replacement"] == NAME
    (target,) = job["static_configs"][0]["targets"]
    assert target == "https://shop.example.org"
    with counting_site() as site:
        query = {"module": job["params"]["module"][0], "target": site.url("/")}
        assert service.get(job["metrics_path"], params=query, headers=bearer(TOKENS["read"])).status_code == 403
        answer = service.get(job["metrics_path"], params=query, headers=bearer(TOKENS["write"]))
    assert re.search(r"^probe_success 1(\.0)?$", answer.text, re.MULTILINE), answer.text


def test_a_job_of_a_cluster_runs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = example("kubernetes.md-yaml-1")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = job["containers"]
    ((variable,),) = (container["env"],)
    reference = variable["valueFrom"]["secretKeyRef"]
    assert reference["key"] in documents("config.yaml")[f"Secret/{reference['name']}"]["stringData"]
    url = f"sqlite:///{tmp_path}/store.db"
    monkeypatch.setenv(variable["name"], url)
    report = tmp_path / "report.sh"
    report.write_text(f"#!/bin/sh\necho ran >> {tmp_path}/ran\n")
    report.chmod(0o755)
    program, *words = container["command"]
    assert program == "solely"
    words = [str(report) if word == "/opt/report.sh" else word for word in words]
    assert [perform(words) for _ in range(2)] == [0, 0]
    assert (tmp_path / "ran").read_text() == "ran\n"
    with Client(url) as once:
        assert once.try_lock("nightly-report") is None, "closed for five minutes"


# -- settings within sentences and commands


def _assigned() -> list[tuple[str, str]]:
    """Settings that pages give a value: in the environment, and by --set."""
    found = set()
    for text in (page.read_text() for page in PAGES):
        found |= {("env", each) for each in re.findall(r"\b(SOLELY_[A-Z_]+=(?:'[^']+'|[^\s`'\",]+))", text)}
        found |= {("set", each) for each in re.findall(r"--set ([a-z_.]+=[^\s`]+)", text)}
    return sorted(each for each in found if "…" not in each[1])  # SOLELY_PORT=tcp://… of a kubelet


ASSIGNED = _assigned()


@pytest.mark.parametrize(("how", "text"), ASSIGNED, ids=[text for _, text in ASSIGNED])
def test_a_setting_within_a_sentence_is_accepted(
    how: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("SOLELY_URL", raising=False)
    (tmp_path / "tokens").write_text("\n".join(LINES))
    words = ["check-config"]
    name, _, value = text.partition("=")
    if how == "set":
        words += ["--set", text]
    else:
        monkeypatch.setenv(name, value.strip("'"))
    assert perform(words) == 0, capfd.readouterr().err
    shown = capfd.readouterr().out
    source = "flag" if how == "set" else "environment"
    assert f"# {source}" in shown, shown


def test_some_settings_are_found() -> None:
    assert {"SOLELY_APPS=alerts", "SOLELY_APPS=none"} <= {text for _, text in ASSIGNED}
    assert {"apps=alerts", "alerts.answer_within=5s"} <= {text for _, text in ASSIGNED}


def test_tokens_and_names_of_the_page_of_the_service(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its two commands, but for the address, which others could reach."""
    page = (ROOT / "docs" / "service.md").read_text()
    minted, served = re.findall(r"^\$ solely (token .+|serve --host 0\.0\.0\.0 .+)$", page, re.MULTILINE)
    file = str(tmp_path / "tokens")
    assert perform([word.replace("tokens", file) for word in minted.split()]) == 0
    token = capfd.readouterr().out.strip()
    assert hashlib.sha256(token.encode()).hexdigest() in Path(file).read_text()
    flags = served.replace("--host 0.0.0.0", "").replace("=tokens", f"={file}").split()[1:]
    known, other, asked = "solely.example.com", "other.example.com", {"key": "deploy", "ttl": 30}
    with Process(tmp_path, *flags, SOLELY_URL="memory://") as process, Service(process, known).http as http:
        until(lambda: http.get("/readyz").status_code == 200)
        for headers, status in (({}, 401), (bearer(token), 200), ({**bearer(token), "host": other}, 421)):
            assert http.post("/v1/locks/acquire", json=asked, headers=headers).status_code == status


def test_the_settings_file_of_deploy(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """With a store and a database that exist, and another port."""
    text = (DEPLOY / "solely.toml").read_text()
    text = re.sub(r"^url = .*$", f'url = "{STORES["valkey"](request)}"', text, flags=re.MULTILINE)
    text = re.sub(r"^data_url = .*$", f'data_url = "sqlite:///{tmp_path}/data.db"', text, flags=re.MULTILINE)
    (tmp_path / "solely.toml").write_text(text)
    assert perform(["check-config", "--config", str(tmp_path / "solely.toml")]) == 0
    (tmp_path / "tokens").write_text("\n".join(LINES))
    flags = ("--config", str(tmp_path / "solely.toml"), "--set", "tokens_file=tokens")
    with Process(tmp_path, *flags) as process, Service(process).http as http:
        until(lambda: http.get("/readyz").status_code == 200)
        assert http.get("/v1/locks", headers=bearer(TOKENS["read"])).status_code == 200
        assert http.get("/v1/locks", headers={**bearer(TOKENS["read"]), "host": "other"}).status_code == 421


def test_the_calls_of_the_page_of_the_service(tmp_path: Path) -> None:
    """Acquire, renew, release, each with the token of the first answer; the fields of the answers are those shown."""
    page = (ROOT / "docs" / "service.md").read_text()
    calls = re.findall(r"^\$ curl -s localhost:8765(\S+) +-H '(.+?): (.+?)' -d '(.+?)'\n(\{.+\})$", page, re.MULTILINE)
    assert [path for path, *_ in calls] == ["/v1/locks/acquire", "/v1/locks/renew", "/v1/locks/release"]
    token = ""
    with Process(tmp_path, SOLELY_URL="memory://") as process, Service(process, "localhost").http as http:
        until(lambda: http.get("/readyz").status_code == 200)
        for path, header, value, body, shown in calls:
            answer = http.post(path, content=body.replace("ZmVmNDEz…", token), headers={header: value})
            assert answer.status_code == 200, answer.text
            assert list(answer.json()) == re.findall(r'"(\w+)":', shown)
            token = answer.json().get("token", token)
