"""Both kinds of middleware."""

import pytest

from tests.http.serving import SERVERS


@pytest.fixture(params=SERVERS)
def kind(request: pytest.FixtureRequest) -> str:
    """asgi, then wsgi."""
    return str(request.param)
