"""A service that the tests of a module share, without tokens and with them."""

from collections.abc import Iterator

import pytest

from tests.service.serving import LINES, Running, running


@pytest.fixture(scope="module")
def open_service() -> Iterator[Running]:
    """Without tokens: everybody on this machine may do all."""
    with running() as it:
        yield it


@pytest.fixture(scope="module")
def guarded() -> Iterator[Running]:
    """With a token of each scope."""
    with running(tokens=LINES) as it:
        yield it
