"""URLs of stores are split the same by every Python."""

import pytest

from solely import Client
from solely.errors import InvalidInput
from solely.urls import split_url


@pytest.mark.parametrize(
    ("url", "scheme", "netloc", "path", "query"),
    [
        ("redis://me:p@h:1/2?db=3", "redis", "me:p@h:1", "/2", "db=3"),
        ("redis+sentinel://me:p@h1,[::1]:5/main?db=1", "redis+sentinel", "me:p@h1,[::1]:5", "/main", "db=1"),
        ("mongodb://[::1]:1,h2", "mongodb", "[::1]:1,h2", "", ""),
        ("postgresql://h1,[::1]?a=1/2", "postgresql", "h1,[::1]", "", "a=1/2"),
        ("sqlite:////a,b/c.db", "sqlite", "", "//a,b/c.db", ""),
        ("memory://", "memory", "", "", ""),
        ("nothing", "", "", "nothing", ""),
    ],
)  # fmt: skip
def test_a_url_of_several_hosts_is_split_like_any_other(
    url: str, scheme: str, netloc: str, path: str, query: str
) -> None:
    parts = split_url(url)
    assert (parts.scheme, parts.netloc, parts.path, parts.query) == (scheme, netloc, path, query)


@pytest.mark.parametrize("url", ["redis://me:secret@[::1/0", "redis://me:secret@h\u2100", "//me:secret@[::1"])
def test_a_url_that_cannot_be_split_is_told_without_its_password(url: str) -> None:
    with pytest.raises(InvalidInput, match="URL is invalid") as told:
        Client(url)
    assert "secret" not in str(told.value)
