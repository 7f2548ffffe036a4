"""How a bug is planted: in the text of the script that a worker sends, in a function of the database, or in a flow."""

import sys
from hashlib import sha1
from typing import Any

import psycopg

from solely.stores.postgres.settings import parse
from solely.stores.postgres.statements import MIGRATIONS
from solely.stores.redis import codec

from ..deployments import Deployment


def altered(text: str, *changes: tuple[str, str], within: str = "", until: str = "\nend\n") -> str:
    """The text with each old part replaced, in the function that begins with `within`; raises if there is none."""
    start = text.index(within) if within else 0
    end = text.index(until, start) if within else len(text)
    part = text[start:end]
    for old, new in changes:
        if old not in part:
            raise ValueError(f"nothing to alter: {old!r} is not in {within or 'the text'!r}")
        part = part.replace(old, new)
    return text[:start] + part + text[end:]


def alter_lua(*changes: tuple[str, str], within: str = "") -> None:
    """Makes this process send another script: every module that has it gets the new one."""
    script = altered(codec.PERFORM.decode(), *changes, within=within).encode()
    new: dict[str, Any] = {
        "PERFORM": script,
        "SHA": sha1(script, usedforsecurity=False).hexdigest().encode(),
        "LOAD": codec.packed("SCRIPT", "LOAD", script),
    }
    for name, module in list(sys.modules.items()):
        if name.startswith("solely.stores.redis"):
            for constant, value in new.items():
                if hasattr(module, constant):
                    setattr(module, constant, value)


def alter_sql(deployment: Deployment, namespace: str, function: str, *changes: tuple[str, str]) -> None:
    """Replaces a function of the schema of this namespace by an altered one."""
    url = deployment.url(namespace)
    source, begin = MIGRATIONS[0].text, f"CREATE FUNCTION {{{function}}}("
    text = altered(source, *changes, within=begin, until="\n$$;")
    start = text.index(begin)
    statement = text[start : text.index("\n$$;", start) + 4].replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        connection.execute(statement.format_map(parse(url).names).encode())
