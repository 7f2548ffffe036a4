"""When a try is begun: only if it has time to end, since one that is cut off leaves doubt whether it was performed."""

import pytest

from solely.drivers.retrying import TimeBudget

TIMEOUT, ENDS = 10.0, 8.5  # seconds


@pytest.mark.parametrize(
    ("took", "now", "fits"),
    [
        (0.001, 7.4, True),
        (0.001, 7.6, False),  # refused at once so far, but this machine may be busy the next time
        (3.0, 5.4, True),
        (3.0, 5.6, False),
        (60.0, 4.9, True),  # no try takes longer than its share of the timeout
        (60.0, 5.1, False),
    ],
)
def test_a_try_is_begun_if_it_has_time_to_end(took: float, now: float, fits: bool) -> None:
    assert TimeBudget().fits(now - took, now, ENDS, TIMEOUT) is fits


def test_a_try_is_begun_until_the_end_where_there_is_doubt_already() -> None:
    budget = TimeBudget()
    budget.doubtful = True
    assert budget.fits(5.0, ENDS, ENDS, TIMEOUT)
    assert not budget.fits(5.0, ENDS + 0.001, ENDS, TIMEOUT)
