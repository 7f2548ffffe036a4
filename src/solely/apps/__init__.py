"""Applications: what stands on the library and is mounted in the service, each in a folder of its own.

To add one: a folder here, or a package anywhere, whose module has `App`, and a line in APPS.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput, missing_extra

if TYPE_CHECKING:
    from .app import App

# name → module whose `App` it is. The name is also its section of the settings and its noun on the command line.
APPS: dict[str, str] = {"alerts": "solely.apps.alerts"}


def find(name: str) -> type[App[Any]]:
    """The application of this name, which is imported; InvalidInput names the known ones if there is none."""
    try:
        module = import_module(module_of(name))
    except ModuleNotFoundError as error:
        if module_of(name).startswith(error.name or "") or (error.name or "").startswith("solely"):
            raise  # ours, and no extra brings it
        raise missing_extra(name, error.name, "service") from error
    if not hasattr(module, "App"):
        raise InvalidInput(f"the application {name} cannot be mounted: its module {APPS[name]} has no App")
    found: type[App[Any]] = module.App
    return found


def module_of(name: str) -> str:
    """The module of this application, which is not imported; InvalidInput names the known ones if there is none."""
    if name not in APPS:
        raise InvalidInput(f"there is no application {name!r:.60}; known are {', '.join(APPS)}")
    return APPS[name]


def has(name: str, part: str) -> bool:
    """True if the package of this application has the file or folder; it is not imported."""
    spec = find_spec(module_of(name))
    folders = [] if spec is None else spec.submodule_search_locations or []
    return any(Path(folder, part).exists() for folder in folders)
