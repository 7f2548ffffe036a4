"""Details travel with a reservation as fields: programs read them, and need not take apart a text for people."""

from typing import Any

import pytest

import solely
from solely.rules import MAX_INFO_BYTES
from solely.testing.clock import ManualClock
from tests.client_modes import result_of

DETAILS = {"id": "msg_1", "trace": f"00-{'a' * 32}-{'b' * 16}-01"}


async def test_the_holder_and_everybody_it_blocks_see_its_details(once: Any, other: Any, clock: ManualClock) -> None:
    hold = await result_of(once.reserve("cpu", quiet=300, purpose="page the admin", details=DETAILS))
    assert (bool(hold), hold.details, hold.purpose) == (True, DETAILS, "")
    for reason in ("reserved", "quiet"):
        refused = await result_of(other.reserve("cpu", details={"id": "msg_2"}))
        assert (refused.reason, refused.details, refused.purpose) == (reason, DETAILS, "page the admin")
        (listed,) = await result_of(other.reservations("cpu"))
        assert (listed.details, "page the admin" in listed.holder) == (DETAILS, True)
        assert "msg_1" not in listed.holder  # which is for people
        await result_of(hold.record())
    clock.advance(301)
    assert (await result_of(other.reserve("cpu"))).details == {}


async def test_without_details_there_are_none(once: Any, other: Any) -> None:
    assert (await result_of(once.reserve("cpu"))).details == {}
    assert (await result_of(other.reserve("cpu", details={}))).details == {}
    (listed,) = await result_of(other.reservations("cpu"))
    assert listed.details == {}


async def test_every_text_arrives_as_it_was_given(once: Any, other: Any) -> None:
    texts = {"quotes": '"\\', "lines": "a\nb", "nul": "\0", "name": "Ünïcode 🔔", "empty": "", "": "no name"}
    await result_of(once.reserve("cpu", details=texts))
    assert (await result_of(other.reserve("cpu"))).details == texts


async def test_a_purpose_that_does_not_fit_beside_them_is_left_out(once: Any, other: Any) -> None:
    details = {"text": "x" * 700}
    await result_of(once.reserve("cpu", purpose="🔔" * 200, details=details))
    refused = await result_of(other.reserve("cpu"))
    assert (refused.details, refused.purpose) == (details, "")


@pytest.mark.parametrize(
    "wrong",
    [[], "id", 7, [("id", "msg_1")], {"id": 7}, {7: "id"}, {"id": None}, {"id": b"x"}, {"id": "x" * MAX_INFO_BYTES}],
    ids=lambda each: repr(each)[:20],
)
async def test_invalid_details_are_refused_before_anything_is_sent(once: Any, wrong: Any) -> None:
    with pytest.raises(solely.InvalidInput, match="details"):
        await result_of(once.reserve("cpu", details=wrong))
    assert await result_of(once.reservations()) == []
