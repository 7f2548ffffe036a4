"""A reservation that was handed over is renewed by its id, for as long as it is held and by nobody else."""

from datetime import timedelta
from typing import Any

import pytest

import solely
from solely.testing.clock import ManualClock
from tests.client_modes import result_of


async def test_it_is_held_for_longer_in_another_process(once: Any, other: Any, clock: ManualClock) -> None:
    id = (await result_of(once.reserve("cpu", hold=30))).hand_over()
    clock.advance(29)
    assert await result_of(other.renew_reservation(id)) == pytest.approx(30.0), "as long as it was reserved for"
    clock.advance(29)
    assert (await result_of(other.reserve("cpu"))).reason == "reserved"
    assert await result_of(other.renew_reservation(id, hold=timedelta(minutes=2))) == pytest.approx(120.0)
    assert await result_of(other.renew_reservation(id, hold=1)) == pytest.approx(120.0), "never shortened"
    clock.advance(119)
    assert (await result_of(other.reserve("cpu"))).reason == "reserved"
    await result_of(other.record_reservation(id))
    assert (await result_of(once.reserve("cpu"))).reason == "quiet"


async def test_what_ran_out_is_not_revived(once: Any, other: Any, clock: ManualClock) -> None:
    id = (await result_of(once.reserve("cpu", hold=30))).hand_over()
    clock.advance(31)
    with pytest.raises(solely.UnknownReservation, match="expired"):
        await result_of(once.renew_reservation(id))
    assert await result_of(other.reserve("cpu"))
    with pytest.raises(solely.ReservationMismatch):
        await result_of(once.renew_reservation(id))


async def test_what_is_over_is_not_renewed(once: Any) -> None:
    recorded = await result_of(once.reserve("recorded", quiet=60))
    await result_of(recorded.record())
    with pytest.raises(solely.UnknownReservation, match="was recorded"):
        await result_of(once.renew_reservation(recorded.id, hold=3600))
    assert (await result_of(once.reserve("recorded"))).retry_after == pytest.approx(60.0), (
        "the quiet window is as it was"
    )
    released = await result_of(once.reserve("released"))
    await result_of(released.release())
    with pytest.raises(solely.UnknownReservation):
        await result_of(once.renew_reservation(released.id))
    cleared = await result_of(once.reserve("cleared"))
    await result_of(once.expire_reservation("cleared", reason="it hangs"))
    with pytest.raises(solely.UnknownReservation, match="cleared"):
        await result_of(once.renew_reservation(cleared.id))


@pytest.mark.parametrize("hold", [0, -1, float("nan"), "30", True])
async def test_a_hold_that_cannot_be(once: Any, hold: Any) -> None:
    held = await result_of(once.reserve("cpu"))
    with pytest.raises(solely.InvalidInput, match="hold"):
        await result_of(once.renew_reservation(held.id, hold=hold))
    assert held.remaining() > 0


@pytest.mark.parametrize("id", ["", "made-up", "e30=", 5, None])
async def test_an_id_that_is_none(once: Any, id: Any) -> None:
    with pytest.raises((solely.UnknownReservation, solely.InvalidInput), match="reservation"):
        await result_of(once.renew_reservation(id))
