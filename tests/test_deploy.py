"""The files of deploy/ use flags, settings, paths and ports that exist, and the service starts as they start it: with
the variables of a kubelet, as the user of the image, on a read-only root. No container engine runs in these tests."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml  # type: ignore[import-untyped]

from solely import InvalidInput, __version__
from solely.apps import APPS, find
from solely.cli.program import perform
from solely.service.mount import all_routes
from solely.service.routes import PUBLIC
from solely.service.security import Scope, mint
from solely.service.settings import Settings, load
from solely.service.settings_parsing import read_environment
from tests import contained
from tests.conftest import STORES
from tests.service.serving import Process, bearer, until
from tests.service.test_serve import ready
from tests.test_docs_commands import parsed

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
UNIT = (DEPLOY / "solely.service").read_text()
PUBLIC_PATHS = {route.path for route in all_routes() if route.auth == PUBLIC and route.method == "GET"}
PORT = Settings().port
SECRET, TOKEN = mint("me", Scope.ADMIN)
DATABASES_OF_PODS = [name for name in ("postgres",) if name in STORES]


def kubelet(service: str, *ports: tuple[str, int, str]) -> dict[str, str]:
    """What a kubelet adds to the pods of a namespace with this Service, whose ports have a name, a number and a
    protocol (https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables)."""
    name, host = service.upper().replace("-", "_"), "10.96.0.7"
    _, number, protocol = ports[0]
    variables = {f"{name}_SERVICE_HOST": host, f"{name}_SERVICE_PORT": str(number)}
    variables[f"{name}_PORT"] = f"{protocol}://{host}:{number}"
    for label, number, protocol in ports:
        link = f"{name}_PORT_{number}_{protocol.upper()}"
        variables |= {link: f"{protocol}://{host}:{number}", f"{link}_PROTO": protocol}
        variables |= {f"{link}_PORT": str(number), f"{link}_ADDR": host}
        if label:
            variables[f"{name}_SERVICE_PORT_{label.upper().replace('-', '_')}"] = str(number)
    return variables


KUBELET = {
    **kubelet("solely", ("http", 80, "tcp"), ("metrics-and-more", 8765, "tcp")),
    **kubelet("solely-valkey", ("", 6379, "tcp")),
    **kubelet("solely-postgres", ("sql", 5432, "tcp")),
    **kubelet("solely-dns", ("dns", 53, "udp"), ("dns-tcp", 53, "tcp"), ("other", 132, "sctp")),
    **{f"SOLELY_{app.upper()}_PORT": "tcp://[fd00::7]:80" for app in APPS},
    **kubelet("solely-url", ("", 80, "tcp")),
    **kubelet("solely-alerts", ("http", 80, "tcp")),
    **kubelet("solely-service", ("service", 80, "tcp")),
}


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


def test_all_that_the_image_installs_is_pinned() -> None:
    """The second pip chose versions of the drivers and of what builds our wheel by itself."""
    installs = re.findall(r"pip install (.+)$", CONTAINERFILE, re.MULTILINE)
    assert [install.removeprefix("--no-cache-dir ") for install in installs] == [
        "--require-hashes --requirement requirements-image.lock",
        "--no-index --no-deps --no-build-isolation .",
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    wanted = [each for name in ("service", "redis", "postgres", "mongo") for each in extras[name]]
    wanted += project["dependency-groups"]["build"] + project["build-system"]["requires"]
    names = {re.split(r"[^A-Za-z0-9-]", each)[0] for each in wanted} - {"solely"}
    pinned = (ROOT / "requirements-image.lock").read_text()
    assert names <= set(re.findall(r"^([a-z0-9-]+)==", pinned, re.MULTILINE))
    for line in re.split(r"^(?=[a-z0-9])", pinned, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in line, line
    everything = (ROOT / "requirements.lock").read_text()
    assert all(pin in everything for pin in re.findall(r"^[a-z0-9-]+==\S+", pinned, re.MULTILINE)), "other versions"


def test_the_base_of_the_image_is_pinned_by_its_digest() -> None:
    """Both stages have the same one, which a build may replace."""
    assert re.findall(r"^FROM (\S+)", CONTAINERFILE, re.MULTILINE) == ["${BASE}", "${BASE}"]
    (default,) = re.findall(r"^ARG BASE=(\S+)$", CONTAINERFILE, re.MULTILINE)
    assert re.fullmatch(r"python:3\.1\d-slim@sha256:[0-9a-f]{64}", default)


def test_the_wheel_of_the_image_is_built_without_a_download(tmp_path: Path) -> None:
    (files,) = re.findall(r"^COPY (pyproject.+) \./$", CONTAINERFILE, re.MULTILINE)
    for name in files.split():
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    command = re.findall(r"pip install (.+) \.$", CONTAINERFILE, re.MULTILINE)[-1].split()
    target = ["--target", str(tmp_path / "installed"), str(tmp_path)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--isolated", "install", *command, *target],
        capture_output=True, text=True, timeout=300, env=environ, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "installed" / "solely" / "service" / "dashboard" / "templates").is_dir()
    assert [path.name.split("-")[0] for path in (tmp_path / "installed").glob("*.dist-info")] == ["solely"]


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
    environ = manifest_environment()
    settings = check_environment(replaced(environ), tmp_path)
    assert given_environment(environ) == set(environ)
    assert settings.url.startswith("redis://")
    assert settings.session_secret


def manifest_environment() -> dict[str, str]:
    config = documents("config.yaml")
    return {**config["ConfigMap/solely"]["data"], **config["Secret/solely"]["stringData"]}


def replaced(environ: dict[str, str]) -> dict[str, str]:
    """The environment, after somebody gave each secret a value."""
    return {name: re.sub(r"replace-me[\w-]*", "5e" * 32, value) for name, value in environ.items()}


@pytest.mark.parametrize("name", ["SOLELY_URL", "SOLELY_DATA_URL", "SOLELY_SESSION_SECRET"])
def test_a_placeholder_of_the_manifests_is_refused(name: str, tmp_path: Path) -> None:
    """Everybody knows them: with this session secret anybody could sign in as an admin."""
    environ = manifest_environment()
    with pytest.raises(InvalidInput, match=f"^{name.removeprefix('SOLELY_').lower()} still has 'replace-me'"):
        check_environment({**replaced(environ), name: environ[name]}, tmp_path)


def test_the_token_of_the_manifests_is_refused() -> None:
    lines = documents("config.yaml")["Secret/solely-tokens"]["stringData"]["tokens"].splitlines()
    (token,) = (line for line in lines if not line.startswith("#"))
    with pytest.raises(InvalidInput, match="the token 'me' has only zeros as its digest"):
        load(environ={"SOLELY_TOKENS": token})


def test_a_token_of_no_text_is_refused() -> None:
    """What `printf %s "$UNSET" | sha256sum` gives: everybody would be an admin who sends `Bearer` and nothing more."""
    with pytest.raises(InvalidInput, match="the token 'me' is empty"):
        load(environ={"SOLELY_TOKENS": f"me:admin:{hashlib.sha256(b'').hexdigest()}"})


def test_a_placeholder_in_the_section_of_an_application_is_refused() -> None:
    given = '[{"type": "webhook", "name": "hook", "url": "https://hooks.example.org/replace-me"}]'
    with pytest.raises(InvalidInput, match=r"alerts\.publishers still has 'replace-me'"):
        load(environ={"SOLELY_ALERTS_PUBLISHERS": given})


def test_the_service_refuses_the_manifests_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in {**manifest_environment(), **KUBELET}.items():
        monkeypatch.setenv(name, value)
    for command in ("check-config", "serve"):
        assert perform([command]) == 2
        error = capfd.readouterr().err
        assert "session_secret still has" in error
        assert manifest_environment()["SOLELY_SESSION_SECRET"] not in error


def test_the_variables_of_the_kubelet_are_ignored(tmp_path: Path) -> None:
    assert load(environ=KUBELET).sources == {}
    with Process(tmp_path, **KUBELET, SOLELY_URL="memory://") as service:
        address = service.address()
        until(lambda: ready(address))
        service.signal(signal.SIGTERM)
        assert service.wait(60) == 0


@pytest.mark.parametrize(
    "words", [("check-config",), ("doctor",), ("locks",), ("explain", "a"), ("migrate",), ("token", "ci")], ids=" ".join
)
def test_a_command_ignores_the_variables_of_the_kubelet(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    for name, value in {**KUBELET, "SOLELY_URL": url, "SOLELY_DATA_URL": f"sqlite:///{tmp_path}/data.db"}.items():
        monkeypatch.setenv(name, value)
    assert perform(words) == 0
    assert "10.96" not in "".join(capfd.readouterr())


def test_no_setting_is_taken_for_a_variable_of_the_kubelet() -> None:
    own = [name for name in Settings.__struct_fields__ if name != "sections"]
    for app in APPS:
        own += [f"{app}_{name}" for name in find(app).Settings.__struct_fields__]
    environ = {f"SOLELY_{name.upper()}": "80" for name in own}
    assert len(dict(read_environment(environ, Settings.__struct_fields__))) == len(environ) > 50


@pytest.mark.parametrize("variable", ["SOLELY_PROT", "SOLELY_PORTS", "SOLELY_SERVICE", "SOLELY_PORT_80"])
def test_other_unknown_variables_are_refused(variable: str) -> None:
    with pytest.raises(InvalidInput, match=f"unknown key '{variable}'"):
        load(environ={variable: "80"})
    with pytest.raises(InvalidInput, match=r"port 'http://10\.0\.0\.1'"):
        load(environ={"SOLELY_PORT": "http://10.0.0.1"})


def pod_spec() -> dict[str, Any]:
    spec: dict[str, Any] = documents("solely.yaml")["Deployment/solely"]["spec"]["template"]["spec"]
    return spec


def compose_commands() -> list[str]:
    """The commands in its first lines that make the secrets, without what is said of them."""
    header = re.findall(
        r"^#   (umask .+|solely token .+|printf .+)$", (DEPLOY / "compose.yaml").read_text(), re.MULTILINE
    )
    return [re.split(r" {3,}", line)[0] for line in header]


def made_by_compose(folder: Path) -> Path:
    """The file of tokens that these commands make in a checkout."""
    (folder / "deploy").mkdir()
    own = f'solely() {{ "{sys.executable}" -m solely.cli "$@"; }}\nset -e\n'
    subprocess.run(["bash", "-c", own + "\n".join(compose_commands())], cwd=folder, check=True, timeout=120)
    return folder / "deploy" / "secrets" / "tokens"


def test_the_secrets_of_compose_are_for_their_user_and_for_the_container(tmp_path: Path) -> None:
    tokens = made_by_compose(tmp_path)
    secret = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["secrets"]["tokens"]["file"]
    assert tmp_path / "deploy" / secret == tokens
    modes = {str(path.relative_to(tmp_path / "deploy")): f"{path.stat().st_mode & 0o777:o}" for path in
             (tokens, tokens.parent, tmp_path / "deploy" / ".env")}  # fmt: skip
    assert modes == {"secrets/tokens": "644", "secrets": "700", ".env": "600"}
    ignored = (DEPLOY / ".gitignore").read_text().split()
    assert "secrets/" in ignored
    assert ".env" in ignored


def test_no_variables_of_services_are_injected() -> None:
    assert documents("solely.yaml")["Deployment/solely"]["spec"]["template"]["spec"]["enableServiceLinks"] is False


if contained.POSSIBLE:  # not collected where nobody may make a namespace

    def mounted_secret(folder: Path, *lines: str) -> Path:
        """The volume of tokens, as a kubelet writes it for the fsGroup: a link, replaced in one step, leads to the
        files."""
        (volume,) = (each["secret"] for each in pod_spec()["volumes"] if each["name"] == "tokens")
        inside = folder / f"..{len([*folder.iterdir()]) if folder.exists() else 0}"
        inside.mkdir(parents=True)
        (inside / "tokens").write_text("\n".join(lines))
        os.chown(inside / "tokens", 0, pod_spec()["securityContext"]["fsGroup"])
        (inside / "tokens").chmod(volume["defaultMode"])
        (folder / "..new").symlink_to(inside.name)
        (folder / "..new").replace(folder / "..data")
        with suppress(FileExistsError):
            (folder / "tokens").symlink_to("..data/tokens")
        return folder

    def start_pod(root: Path, secret: Path, **urls: str) -> subprocess.Popen[str]:
        """The Deployment's arguments and environment, with what the kubelet adds; its user, its read-only root."""
        (container,) = pod_spec()["containers"]
        args = " ".join(container["args"]).replace("0.0.0.0", "127.0.0.1").replace(f"--port {PORT}", "--port 0")
        (mount,) = (each["mountPath"] for each in container["volumeMounts"] if each["name"] == "tokens")
        environ = {**replaced(manifest_environment()), **KUBELET, **urls}
        root.mkdir()
        return contained.start(root, tuple(args.split()), environ, **{mount.strip("/").replace("/", "__"): secret})

    @pytest.mark.parametrize("database", DATABASES_OF_PODS)
    def test_the_pods(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        """Both at once, on a new store and database: they share locks, logins, logouts and changed tokens."""
        secret = mounted_secret(tmp_path / "secret", TOKEN)
        urls = {"SOLELY_URL": STORES["valkey"](request), "SOLELY_DATA_URL": STORES[database](request)}
        number = documents("solely.yaml")["Deployment/solely"]["spec"]["replicas"]
        pods = [start_pod(tmp_path / f"root-{n}", secret, **urls) for n in range(number)]
        try:
            addresses = [address_of(pod) for pod in pods]
            here, there = (httpx2.Client(base_url=address, timeout=60.0) for address in addresses)
            with here, there:
                for address in addresses:
                    until(partial(ready, address))
                check_hosts(here)
                asked = {"key": "deploy", "ttl": 30}
                answers = [each.post("/v1/locks/acquire", json=asked, headers=bearer(SECRET)) for each in (here, there)]
                assert [answer.status_code for answer in answers] == [200, 409], answers[1].text
                named = {"name": "Disk full", "severity": "critical", "source": "db-1"}
                sent = [each.post("/api/alerts", json=named, headers=bearer(SECRET)).json() for each in (here, there)]
                assert [each["outcome"] for each in sent] == ["published", "suppressed"]
                sign_in(here, SECRET)
                there.cookies.update(dict(here.cookies))
                assert there.get("/locks").status_code == 200
                other, line = mint("other", Scope.READ)
                mounted_secret(secret, line)
                for each in (here, there):
                    until(partial(may_read, each, other))
                    assert not may_read(each, SECRET)
                    assert each.get("/locks").status_code == 303, "the login of a token that is gone"
            for pod in pods:
                pod.send_signal(signal.SIGTERM)
            assert [pod.wait(60) for pod in pods] == [0] * number
        finally:
            for pod in pods:
                pod.kill()
                pod.communicate()

    def may_read(pod: httpx2.Client, token: str) -> bool:
        return pod.get("/v1/locks", headers=bearer(token)).status_code == 200

    def check_hosts(pod: httpx2.Client) -> None:
        """The kubelet asks by the address of the pod, others by the names of the ConfigMap."""
        names = ["10.244.0.17:8765", "[fd00::17]:8765", *manifest_environment()["SOLELY_ALLOWED_HOSTS"].split(",")]
        (container,) = pod_spec()["containers"]
        for name in names:
            for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
                path = container[probe]["httpGet"]["path"]
                assert pod.get(path, headers={"host": name}).status_code == 200, (name, path)
        assert pod.get("/v1/locks", headers={**bearer(SECRET), "host": "other.example.org"}).status_code == 421

    def sign_in(pod: httpx2.Client, token: str) -> None:
        csrf = re.findall(r'name="csrf" value="([0-9a-f]{64})"', pod.get("/login").text)[0]
        answer = pod.post("/login", data={"csrf": csrf, "token": token, "next": "/locks"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/locks")

    def test_a_pod_with_the_placeholder_of_the_tokens_ends(tmp_path: Path) -> None:
        placeholder = documents("config.yaml")["Secret/solely-tokens"]["stringData"]["tokens"]
        ended = start_pod(tmp_path / "root", mounted_secret(tmp_path / "secret", placeholder))
        text, _ = ended.communicate(timeout=120)
        assert (ended.returncode, text.count("\n")) == (2, 1), text
        assert "the token 'me' has only zeros as its digest" in text

    @pytest.mark.parametrize("name", ["SOLELY_URL", "SOLELY_DATA_URL"])
    def test_a_pod_without_a_store_or_a_database_says_so(name: str, tmp_path: Path) -> None:
        """Their defaults are files below the home of the user, on the read-only root."""
        secret = mounted_secret(tmp_path / "secret", TOKEN)
        ended = start_pod(tmp_path / "root", secret, **{name: ""})
        text, _ = ended.communicate(timeout=120)
        assert ended.returncode > 0
        assert "Traceback" not in text, text
        assert re.search(f"/var/lib/solely/.* cannot be created: .*Read-only file system.*; name .*{name}", text)

    def test_a_command_of_a_pod(tmp_path: Path) -> None:
        """Such as a CronJob: it runs a command under a lock, with a watchdog beside it."""
        root = tmp_path / "root"
        root.mkdir()
        words = ("run", "--lock", "nightly", "--", "echo", "done")
        ended = contained.start(root, words, {**KUBELET, "SOLELY_URL": "sqlite:////tmp/store.db"})
        text, _ = ended.communicate(timeout=120)
        assert (ended.returncode, text) == (0, "done\n")

    def test_the_service_of_compose(tmp_path: Path) -> None:
        """With the file of tokens that its commands make."""
        service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["solely"]
        tokens = made_by_compose(tmp_path)
        root = tmp_path / "root"
        root.mkdir()
        environ = {"SOLELY_URL": "sqlite:////tmp/solely.db", "SOLELY_SESSION_SECRET": "5e" * 32}
        environ["SOLELY_TOKENS_FILE"] = service["environment"]["SOLELY_TOKENS_FILE"]
        words = (*service["command"], "--port", "0")
        check_serves(contained.start(root, words, environ, run__secrets__tokens=tokens))

    def test_tokens_that_the_user_of_the_image_cannot_read_are_explained(tmp_path: Path) -> None:
        tokens = tmp_path / "tokens"
        tokens.write_text(TOKEN)
        tokens.chmod(0o600)
        root = tmp_path / "root"
        root.mkdir()
        environ = {"SOLELY_TOKENS_FILE": "/run/secrets/tokens"}
        ended = contained.start(root, ("serve",), environ, run__secrets__tokens=tokens)
        text, _ = ended.communicate(timeout=120)
        assert ended.returncode == 2
        assert f"it belongs to uid 0 with mode 600, and the service runs as uid {contained.USER}" in text
        assert "solely token … --mode 644" in text


def address_of(process: subprocess.Popen[str]) -> str:
    """Where the service is, once it says so."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "Solely is at " in line:
            return next(word.rstrip("/") for word in line.split() if word.startswith("http://"))
    pytest.fail("".join(lines))


def check_serves(process: subprocess.Popen[str]) -> None:
    """Waits until the service is ready, and stops it in order."""
    try:
        address = address_of(process)
        until(lambda: ready(address))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


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
