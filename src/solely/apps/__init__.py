"""Applications: built on the library and mounted in the service, each in its own folder.

To add one: a folder here, or a package anywhere, with a subclass of `Application` in its module `app`, and a line in
APPS.
"""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import InvalidInput, missing_extra

# name → package:class. The name is also the application's section of the settings and its noun on the command line.
APPS: dict[str, str] = {
    "alerts": "solely.apps.alerts:AlertsApp",
    "probes": "solely.apps.probes:ProbesApp",
    "signals": "solely.apps.signals:SignalsApp",
    "repos": "solely.apps.repos:ReposApp",
    "triggers": "solely.apps.triggers:TriggersApp",
}


def find(name: str) -> Any:
    """The application class of this name, imported; InvalidInput, which lists the known ones, if there is none."""
    package, kind = module_of(name), APPS[name].partition(":")[2]
    module = f"{package}.app" if has(name, "app.py") else package  # so that commands start without the service
    try:
        found = getattr(import_module(module), kind, None)
    except ModuleNotFoundError as error:
        if package.startswith(error.name or "") or (error.name or "").startswith("solely"):
            raise  # ours, and no extra brings it
        raise missing_extra(name, error.name, "service") from error
    if found is None:
        raise InvalidInput(f"the application {name} cannot be mounted: its module {module} has no class {kind}")
    return found


def module_of(name: str) -> str:
    """The module of this application, without importing it; InvalidInput, which lists the known ones, if there is
    none."""
    if name not in APPS:
        raise InvalidInput(f"there is no application {name!r:.60}; known are {', '.join(APPS)}")
    return APPS[name].partition(":")[0]


def docstring(name: str) -> str:
    """The docstring of the package of this application, which is not imported."""
    spec = find_spec(module_of(name))
    if spec is None or spec.origin is None:
        return ""
    return ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""


def has(name: str, part: str) -> bool:
    """True if the package of this application contains the file or folder; the package is not imported."""
    spec = find_spec(module_of(name))
    folders = [] if spec is None else spec.submodule_search_locations or []
    return any(Path(folder, part).exists() for folder in folders)
