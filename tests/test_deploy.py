"""The files of deploy/ use flags, settings, paths and ports that exist. No container engine runs in these tests."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from solely import __version__
from solely.service.mount import all_routes
from solely.service.routes import PUBLIC
from solely.service.settings import Settings, load
from tests.test_docs_commands import parsed

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
UNIT = (DEPLOY / "solely.service").read_text()
PUBLIC_PATHS = {route.path for route in all_routes() if route.auth == PUBLIC and route.method == "GET"}
PORT = Settings().port
TOKEN = f"me:admin:{'0' * 64}"


def documents(name: str) -> dict[str, dict[str, Any]]:
    """The documents of a manifest, by kind and name."""
    with (DEPLOY / "kubernetes" / name).open() as file:
        return {f"{each['kind']}/{each['metadata']['name']}": each for each in yaml.safe_load_all(file)}


def check_environment(environ: dict[str, str], tmp_path: Path) -> Settings:
    """The settings that this environment gives; InvalidInput if one of them does not exist or is wrong."""
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN)
    return load(environ={**environ, "SOLELY_TOKENS_FILE": str(tokens)}).settings


def given_environment(environ: dict[str, str]) -> set[str]:
    return {name for name in environ if name.startswith("SOLELY_")}


# -- the image


def test_the_image_is_built_of_what_exists() -> None:
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", CONTAINERFILE, re.MULTILINE)
    for name in " ".join(copied).split():
        assert (ROOT / name).exists(), name
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = re.findall(r"'\.\[(.+)\]'", CONTAINERFILE)
    assert set(wanted.split(",")) <= set(extras)
    assert "--require-hashes --requirement requirements-serve.lock" in CONTAINERFILE


def test_the_image_runs_the_service_where_its_probes_look() -> None:
    assert f"EXPOSE {PORT}\n" in CONTAINERFILE
    (path,) = re.findall(rf"http://127\.0\.0\.1:{PORT}(/\w+)", CONTAINERFILE)
    assert path in PUBLIC_PATHS
    assert 'ENTRYPOINT ["solely"]' in CONTAINERFILE
    parsed(["serve"])
    settings = {name.removeprefix("SOLELY_").lower() for name in re.findall(r"(SOLELY_\w+)=", CONTAINERFILE)}
    assert settings
    assert settings <= set(Settings.__struct_fields__)
    assert re.search(r"^USER \d+$", CONTAINERFILE, re.MULTILINE), "Kubernetes checks a number"


def test_compose(tmp_path: Path) -> None:
    file = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    service = file["services"]["solely"]
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    parsed(service["command"])
    assert service["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    environ = {name: re.sub(r"\$\{\w+:\?\}", "0" * 64, text) for name, text in service["environment"].items()}
    settings = check_environment(environ, tmp_path)
    assert environ["SOLELY_TOKENS_FILE"] == f"/run/secrets/{service['secrets'][0]}"
    for url, other in ((settings.url, "store"), (settings.data_url, "database")):
        assert f"{other}:" in url
        assert other in file["services"]
        assert other in service["depends_on"]
    assert {name for each in file["services"].values() for name in _named_volumes(each)} == set(file["volumes"])


def _named_volumes(service: dict[str, Any]) -> set[str]:
    return {volume.partition(":")[0] for volume in service.get("volumes", ())}


# -- systemd


def test_the_settings_of_the_unit(tmp_path: Path) -> None:
    (start,) = re.findall(r"^ExecStart=\S+/solely (.+)$", UNIT, re.MULTILINE)
    parsed(start.split())
    assert set(re.findall(r"LoadCredential=(\S+?):", UNIT)) == set(re.findall(r"%d/(\S+)", UNIT))
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    assert int(seconds) > Settings().stop_timeout
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN)
    settings = load(DEPLOY / "solely.toml", environ={"SOLELY_TOKENS_FILE": str(tokens)}).settings
    assert settings.url.startswith("redis://")
    assert settings.port == PORT


if shutil.which("systemd-analyze"):  # not collected where there is no systemd

    def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
        unit = tmp_path / "solely.service"
        unit.write_text(UNIT.replace("/opt/solely/bin/solely", str(Path(sys.executable).parent / "solely")))
        command = ["systemd-analyze", "verify", "--man=no", str(unit)]
        verified = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert (verified.returncode, verified.stderr) == (0, "")


# -- Kubernetes


def test_the_settings_of_the_manifests(tmp_path: Path) -> None:
    config = documents("config.yaml")
    environ = {**config["ConfigMap/solely"]["data"], **config["Secret/solely"]["stringData"]}
    settings = check_environment(environ, tmp_path)
    assert given_environment(environ) == set(environ)
    assert settings.url.startswith("redis://")
    assert settings.session_secret
    lines = config["Secret/solely-tokens"]["stringData"]["tokens"].splitlines()
    assert [line for line in lines if not line.startswith("#")] == [TOKEN]


def test_the_deployment() -> None:
    found, config = documents("solely.yaml"), documents("config.yaml")
    deployment = found["Deployment/solely"]["spec"]
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    assert deployment["replicas"] == 2
    assert container["image"] == f"solely:{__version__}"
    parsed(container["args"])
    assert container["ports"] == [{"name": "http", "containerPort": PORT}]
    assert f"--port {PORT}" in " ".join(container["args"])
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        assert container[probe]["httpGet"]["path"] in PUBLIC_PATHS
        assert container[probe]["httpGet"]["port"] == "http"
    assert container["livenessProbe"]["httpGet"]["path"] != container["readinessProbe"]["httpGet"]["path"]
    assert pod["terminationGracePeriodSeconds"] > Settings().stop_timeout + 5  # preStop sleeps for 5 s
    for source in container["envFrom"]:
        ((kind, name),) = ((kind, each["name"]) for kind, each in source.items())
        assert f"{ {'configMapRef': 'ConfigMap', 'secretRef': 'Secret'}[kind] }/{name}" in config
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    assert f"Secret/{volumes['tokens']['secret']['secretName']}" in config
    assert "tokens_file=/etc/solely/tokens" in container["args"]


def test_the_pods_have_no_privileges_and_are_found_by_their_labels() -> None:
    found = documents("solely.yaml")
    deployment = found["Deployment/solely"]["spec"]
    pod = deployment["template"]["spec"]
    security = pod["containers"][0]["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] > 0
    assert f"USER {pod['securityContext']['runAsUser']}\n" in CONTAINERFILE
    assert security == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == labels
    assert found["Service/solely"]["spec"]["selector"] == labels
    assert found["Service/solely"]["spec"]["ports"][0]["targetPort"] == "http"
    budget = found["PodDisruptionBudget/solely"]["spec"]
    assert budget["selector"]["matchLabels"] == labels
    assert budget["minAvailable"] < deployment["replicas"]
