"""solely doctor: is the store within reach, is its clock right, and does any setting break a promise?"""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

import click

from .. import __version__
from ..errors import SolelyError
from ..model import Finding
from ..stores import capabilities
from .exits import Exit, code_of, leave
from .help import Command
from .options import StoreOptions, at_store, in_form
from .output import Form

LEVELS = {"ok": "green", "warning": "yellow", "error": "bold red"}


@click.command(cls=Command, examples=["solely doctor", "solely check --url redis://localhost", "solely doctor --json"])
@in_form
@at_store
def doctor(options: StoreOptions, form: Form) -> None:
    """Checks the store, its clock and its settings, and prints the versions in use.

    Exits with 0 if nothing is wrong, 1 if there is an error, 4 if the store denies access, 75 if it is unreachable.
    """
    findings = versions(options.url)
    code = Exit.OK
    try:
        with options.client() as once:
            findings += once.check()
            once.seen("solely:doctor")  # check() reports an unreachable store as a finding; this raises
        findings += attention(options)
    except SolelyError as error:
        findings.append(Finding("error", "store", str(error)))
        code = code_of(error)
    if code is Exit.OK and any(finding.level == "error" for finding in findings):
        code = Exit.ERROR
    form.rows([finding._asdict() for finding in findings], ("level", "subject", "text"), styles=LEVELS)
    leave(code)


def attention(options: StoreOptions) -> list[Finding]:
    """What a service reports of itself and its applications; nothing if the store is none."""
    if not options.url.startswith(("http://", "https://")):
        return []
    from ..http import Client

    with Client(options.url, timeout=options.timeout) as client:
        found = client.get("/v1/attention", dict[str, list[dict[str, str]]])["attention"]
    return [Finding(each["level"], "service", each["text"]) for each in found] or [
        Finding("ok", "service", "nothing needs attention")
    ]


def versions(url: str) -> list[Finding]:
    """What runs here."""
    found = [Finding("ok", "Python", f"{platform.python_version()} on {sys.platform}")]
    found.append(Finding("ok", "solely", __version__))
    for name in ("click", "rich", *capabilities(url).packages):
        try:
            found.append(Finding("ok", name, version(name)))
        except PackageNotFoundError:
            found.append(Finding("warning", name, "is not installed"))
    return found
