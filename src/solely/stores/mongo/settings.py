"""What a mongodb:// URL says: where, which database and collection; everything else in it is pymongo's."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlunsplit

from bson.codec_options import CodecOptions
from pymongo.auth_shared import MongoCredential, _build_credentials_tuple
from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri

from ...credentials import Login, Logins
from ...errors import InvalidInput
from ...urls import read_namespace, split_url

DATABASE = "solely"
# How answers are read. The server quotes a key in some of its errors and cuts it off in the middle of a letter: such an
# error must be readable, too. No text that we keep is changed by this, since all of it is valid.
CODEC: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True, unicode_decode_error_handler="replace")
_MAX_NAME = 120  # bytes: all that MongoDB allows for database and collection together, less the longest database name


class MongoSettings(NamedTuple):
    """Where the entries are. Its text has no login."""

    url: str  # as pymongo takes it
    database: str
    collection: str
    hosts: str
    logins: Logins | None = None  # instead of a login in `url`

    def __str__(self) -> str:
        return f"mongodb://{self.hosts}/{self.database}.{self.collection}"

    def __repr__(self) -> str:
        return f"<{self}>"

    def credential(self, login: Login) -> MongoCredential:
        """The login as pymongo's connections take it, with the mechanism and the database that the URL names."""
        options = {name.lower(): value for name, value in parse_uri(self.url, warn=False)["options"].items()}
        mechanism, source = options.get("authmechanism", "DEFAULT"), options.get("authsource")
        return _build_credentials_tuple(mechanism, source, login.username, login.password, options, self.database)

    def arguments(self, timeout: float) -> dict[str, Any]:
        """How a client of pymongo is to behave, whatever the URL says: one try, and bounded."""
        wait = max(1, round(timeout * 1_000))
        return {
            "retryWrites": False,  # the driver above must see every try that was not answered
            "retryReads": False,
            "serverSelectionTimeoutMS": wait,
            "connectTimeoutMS": wait,
            # The server gives up by itself at `wait`; its answer that it did is worth a little more patience.
            "socketTimeoutMS": wait + 250,
            "waitQueueTimeoutMS": wait,
            # A server that could not serve is tried again only at the next heartbeat; the default is 10 s.
            "heartbeatFrequencyMS": 1_000,
            "readPreference": "primary",
            "connect": False,
            "tz_aware": CODEC.tz_aware,
            "unicode_decode_error_handler": CODEC.unicode_decode_error_handler,
            "appname": "solely",
        }


def parse(url: str, logins: Logins | None = None) -> MongoSettings:
    """The settings in the URL; InvalidInput, which names the invalid part, if it has one."""
    parts = split_url(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    rest = "&".join(f"{quote(name)}={quote(value)}" for name, value in options if name != "namespace")
    database = unquote(parts.path.strip("/")) or DATABASE
    hosts = parts.netloc.rpartition("@")[2]
    # The path of a MongoDB URL is also where the login is looked up, so it is left as it was.
    settings = MongoSettings(
        url=urlunsplit((parts.scheme, parts.netloc, parts.path or "/", rest, "")),
        database=_database(database),
        collection=read_namespace(options),
        hosts=hosts,
        logins=logins,
    )
    if logins is not None and parts.netloc != hosts:
        raise InvalidInput("the mongodb:// URL has a login, and credentials are given, too; give one of them")
    if not hosts:
        raise InvalidInput("the mongodb:// URL names no host; write mongodb://host:27017/database")
    if parts.scheme == "mongodb":  # one of mongodb+srv:// is resolved only by the name server
        _validate(settings.url, parts.netloc.rpartition("@")[0])
    return settings


def _database(name: str) -> str:
    bad = not name or "\0" in name or len(name.encode()) > _MAX_NAME or name.startswith("system.")
    if bad or any(letter in name for letter in ' ."$*<>:|?\\/'):
        raise InvalidInput(f"{name!r:.40} is no valid name of a database in MongoDB")
    return name


def _validate(url: str, login: str) -> None:
    try:
        parse_uri(url, validate=True, warn=False)
    except (PyMongoError, ValueError) as error:
        text = str(error)
        if any(part and part in text for part in (login, *login.split(":"), *map(unquote, login.split(":")))):
            text = "the login is not as it must be; escape what is not a letter or digit, as %40 for @"
        raise InvalidInput(f"the mongodb:// URL is invalid: {text}") from None
