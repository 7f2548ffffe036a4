"""Tells requests on the wire to a Redis store apart, whatever their encoding: only an Acquire carries its holder."""

from solely.testing.proxy import Where

_HOLDER = b'"host"'


def acquires(key: str) -> Where:
    """True for chunks in which somebody asks for this lock."""
    return lambda data: f"lock/{key}".encode() in data and _HOLDER in data


def others(key: str) -> Where:
    """True for chunks about this lock that ask for something else: a release, a renewal."""
    return lambda data: f"lock/{key}".encode() in data and _HOLDER not in data


def about(key: str) -> Where:
    """True for chunks in which this stored key occurs."""
    return lambda data: key.encode() in data
