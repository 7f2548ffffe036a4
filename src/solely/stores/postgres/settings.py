"""What a URL says: how libpq reaches the server, and our own options. A password never shows in a repr or an error.

postgresql://user:password@host:5432/database?namespace=solely&migrate=auto

Options of ours: namespace (the schema that the entries are kept in), solely_table (the table there),
migrate=auto|never (whether opening brings the schema up to date), pgbouncer=true (a pooler that lends a connection per
transaction: no prepared statements and no LISTEN, so that waiters poll; nothing is set for a session, so that the
user's transactions must begin at read committed by themselves) or false (each connection is a session of the server);
without it, a pooler is noticed when a connection is opened. All others are libpq's: sslmode, application_name,
target_session_attrs, …
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import Literal

from ...credentials import Logins
from ...errors import InvalidInput
from ...urls import read_namespace, split_url
from .statements import QUERIES, Names, lock_id

_OURS = ("namespace", "solely_table", "migrate", "pgbouncer")
# 40: the longest name of an object beside the table then still fits PostgreSQL's 63 bytes.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}")


@dataclass(frozen=True)
class PostgresSettings:
    """A parsed URL."""

    schema: str
    table: str
    migrates: bool
    pgbouncer: bool | None  # None: a pooler is looked for
    address: str
    conninfo: str = field(repr=False)
    queries: dict[str, bytes] = field(repr=False)
    logins: Logins | None = None  # instead of a password in `conninfo`

    def __str__(self) -> str:
        return self.address

    def lock_id(self, key: str) -> int:
        """The advisory lock of this key."""
        return lock_id(self.schema, self.table, key)

    @property
    def names(self) -> Names:
        return Names(self.schema, self.table)

    def queries_in(self, life: str) -> dict[str, bytes]:
        """The statements for ops, each of which fails, and changes nothing, in any other life of the server."""
        guard = f"{self.names['same_life']}({Literal(life).as_string()})".encode()
        return {
            name: b"SELECT guarded.* FROM (%s) guarded WHERE %s" % (text, guard)
            for name, text in self.queries.items()
            if text.startswith(b"SELECT")
        }


def parse(url: str, logins: Logins | None = None) -> PostgresSettings:
    """The settings in the URL; InvalidInput, which names the invalid part, if it has one."""
    parts = split_url(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: value for name, value in options if name in _OURS}
    theirs = urlencode([(name, value) for name, value in options if name not in _OURS], quote_via=quote)
    schema = read_namespace(options)
    table = _name("solely_table", ours.get("solely_table", "entries"))
    try:
        given = conninfo_to_dict(parts._replace(query=theirs).geturl())
    except UnicodeDecodeError:  # its text shows what may be the password
        raise InvalidInput(f"the {parts.scheme}:// URL is invalid: what %XX stands for must be UTF-8") from None
    except psycopg.ProgrammingError as error:
        raise InvalidInput(f"the {parts.scheme}:// URL is invalid: {_without_secrets(error, parts.netloc)}") from None
    if logins is not None and "password" in given:
        raise InvalidInput("the URL has a password, and credentials are given, too; give one of them")
    if "application_name" not in given:
        given["fallback_application_name"] = "solely"
    given["client_encoding"] = "UTF8"
    names = Names(schema, table)
    return PostgresSettings(
        schema=schema,
        table=table,
        migrates=_choice("migrate", ours.get("migrate", "auto"), ("auto", "never")) == "auto",
        pgbouncer=_choice("pgbouncer", ours["pgbouncer"], ("true", "false")) == "true" if "pgbouncer" in ours else None,
        address=_address(given),
        conninfo=make_conninfo("", **given),
        queries={name: text.format_map(names).encode() for name, text in QUERIES.items()},
        logins=logins,
    )


def _name(option: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{option} must be 1 to 40 letters, digits, _ or -, not beginning with a digit: {name!r:.60}"
        )
    return name


def _choice(option: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise InvalidInput(f"{option} must be {' or '.join(choices)}, not {value!r:.40}")
    return value


def _address(given: dict[str, Any]) -> str:
    hosts = str(given.get("host") or given.get("hostaddr") or "localhost").split(",")
    ports = str(given.get("port") or "5432").split(",")
    places = [f"{host}:{ports[min(place, len(ports) - 1)]}" for place, host in enumerate(hosts)]
    database = given.get("dbname") or given.get("user") or ""
    return f"postgresql://{','.join(places)}/{database}"


def _without_secrets(error: Exception, netloc: str) -> str:
    """libpq may quote the part of the URL that it cannot read."""
    text = str(error).strip()
    login = netloc.rpartition("@")[0]
    password = login.partition(":")[2]
    return text if not password or password not in text else "libpq cannot read it"
