"""What a live stream sends of a page: new lines, and where the others were before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from solely.service.dashboard.live import changed_lines

TEXTS = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=12)


@given(before=TEXTS, after=TEXTS)
def test_the_changed_lines_make_the_new_text_of_the_old_one(before: list[str], after: list[str]) -> None:
    made = list[str]()
    for part in changed_lines(before, after):
        made += [part] if isinstance(part, str) else before[part[0] : part[1]]
    assert made == after


def test_lines_that_stay_are_one_range() -> None:
    lines = [f"line {number}" for number in range(100)]
    assert changed_lines(lines, lines) == [[0, 100]]
    assert changed_lines(lines, [*lines[:50], "new", *lines[50:]]) == [[0, 50], "new", [50, 100]]
    assert changed_lines(lines, lines[1:]) == [[1, 100]]
    assert changed_lines([], ["one"]) == ["one"]
