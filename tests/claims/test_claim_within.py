"""once.within(connection).publish: the result of a claim commits or rolls back with the caller's rows."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import solely
from solely import AsyncClient, Client, State
from solely.rules import MAX_VALUE_BYTES
from tests.claims.modes import Peek
from tests.places import Mongodb, Place, Postgresql
from tests.test_within import PLACES


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    found = PLACES[request.param](request)
    yield found
    if isinstance(found, Mongodb):
        found.mongo.close()


def test_the_result_stands_if_and_only_if_the_callers_rows_do(place: Place) -> None:
    with Client(place.url) as once, Client(place.url) as other, Peek(place.url) as peek:
        for commits in (False, True):
            with once.claim("a") as claim:
                assert claim.won
                connection = place.begin()
                place.insert(connection, f"commits: {commits}")
                assert once.within(connection).publish(claim, {"commits": commits})
                (place.commit if commits else place.rollback)(connection)
                place.close(connection)
                assert peek("a").state is (State.DONE if commits else State.HELD)
            assert peek("a").state is (State.DONE if commits else State.FREE)
        assert place.rows() == ["commits: True"]
        assert other.claim("a").value == once.claim("a").value == {"commits": True}


def test_a_late_winner_is_told_to_roll_back(place: Place) -> None:
    with Client(place.url) as once, Client(place.url) as other:
        late = once.claim("a", ttl=1.0, renew=False)
        successor = other.claim("a", wait=30)
        assert successor.won
        connection = place.begin()
        assert once.within(connection).publish(late, "late") is False
        place.rollback(connection)
        place.close(connection)
        assert successor.publish("right").published


def test_another_result_than_the_first_is_told_to_roll_back(place: Place) -> None:
    with Client(place.url) as once:
        claim = once.claim("a")
        claim.publish("first")
        for value, stands in (("second", False), ("first", True)):
            connection = place.begin()
            assert once.within(connection).publish(claim, value) is stands
            place.rollback(connection)
            place.close(connection)
        assert once.claim("a").value == "first"


def test_what_cannot_be_published_there(place: Place) -> None:
    with Client(place.url) as once:
        claim = once.claim("a")
        connection = place.begin()
        within = once.within(connection)
        with pytest.raises(solely.InvalidInput, match="JSON-serializable"):
            within.publish(claim, object())
        with pytest.raises(solely.InvalidInput, match="not won"):
            within.publish(once.claim("a", wait=0), 1)
        assert within.publish(claim, b"x" * (MAX_VALUE_BYTES + 1), keep=60)
        place.commit(connection)
        place.close(connection)
        assert once.claim("a", wait=0).tombstone
        claim.release()


async def test_awaited(place: Place) -> None:
    if isinstance(place, Mongodb):
        from pymongo import AsyncMongoClient

        async with AsyncMongoClient[dict[str, Any]](place.address) as mongo, AsyncClient(place.url) as once:
            async with await once.claim("a") as claim, mongo.start_session() as session:
                await session.start_transaction()
                assert await once.within(session).publish(claim, 1)
                await session.commit_transaction()
            assert (await once.claim("a")).value == 1
    elif isinstance(place, Postgresql):
        from psycopg import AsyncConnection

        async with AsyncClient(place.url) as once, await AsyncConnection.connect(place.address) as connection:
            async with await once.claim("a") as claim:
                waiting = asyncio.ensure_future(once.claim("a", wait=30))
                assert await once.within(connection).publish(claim, 1)
                await connection.commit()
            assert (await waiting).value == 1
    else:
        async with AsyncClient(place.url) as once, await once.claim("a") as claim:
            connection = place.begin()
            assert await once.within(connection).publish(claim, 1)
            place.commit(connection)
            place.close(connection)
            assert (await once.claim("a", wait=0)).value == 1
