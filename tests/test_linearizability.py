"""The checker finds an order where there is one and none where there is none; bugs planted in it are found; and real
histories pass, unless a bug is planted in what made them."""

from __future__ import annotations

import itertools
import math
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from solely import Client, StoreError
from solely.testing import check_history
from solely.testing.linearizability import (
    UNANSWERED,
    ClaimModel,
    LockModel,
    MarkModel,
    Operation,
    QueueModel,
    Recorder,
    ReservationModel,
    checker,
    line_of,
    read_history,
)


def op(name: str, owner: str, output: Any, begin: float, end: float = math.inf, *given: Any) -> Operation:
    return Operation("k", name, owner, output, begin, end, given)


def acquire(owner: str, output: Any, begin: float, end: float = math.inf, ttl: float = 10.0) -> Operation:
    return op("acquire", owner, output, begin, end, ttl)


GOOD: dict[str, tuple[Any, list[Operation]]] = {
    "one after the other": (LockModel(), [
        acquire("a", 1, 1, 2), op("release", "a", True, 3, 4), acquire("b", 2, 5, 6),
    ]),
    "a refusal overlaps the release": (LockModel(), [
        acquire("a", 1, 1, 2), acquire("b", 0, 3, 6), op("release", "a", True, 4, 5),
    ]),
    "after expiry": (LockModel(), [
        acquire("a", 1, 1, 2), acquire("b", 2, 11.5, 12), op("release", "a", False, 13, 14),
    ]),
    "a renewed hold": (LockModel(), [
        acquire("a", 1, 1, 2), op("renew", "a", True, 9, 10, 10.0), acquire("b", 0, 13, 14),
    ]),
    "a token is resumed once": (LockModel(), [
        acquire("a", 1, 1, 2), op("resume", "a", 0, 3, 8, "c", 10.0), op("resume", "a", 2, 4, 5, "b", 10.0),
        op("release", "a", False, 6, 7), op("release", "b", True, 9, 10), acquire("d", 3, 11, 12),
    ]),
    "a resume that was not answered": (LockModel(), [
        acquire("a", 1, 1, 2), op("resume", "a", UNANSWERED, 3, math.inf, "b", 10.0),
        op("release", "b", UNANSWERED, 3), acquire("d", 3, 5, 6),
    ]),
    "unanswered, and it happened": (LockModel(), [acquire("a", UNANSWERED, 1), acquire("b", 0, 5, 6)]),
    "unanswered, and it did not": (LockModel(), [acquire("a", UNANSWERED, 1), acquire("b", 1, 5, 6)]),
    "wiped": (LockModel(), [acquire("a", 1, 1, 2), op("wipe", "", True, 3, 4), acquire("b", 2, 5, 6)]),
    "one first": (MarkModel(), [op("first", "a", True, 1, 3, 60.0), op("first", "b", False, 2, 4, 60.0)]),
    "first again after expiry": (MarkModel(), [op("first", "a", True, 1, 2, 1.0), op("first", "b", True, 3, 4, 1.0)]),
    "forgotten": (MarkModel(), [
        op("first", "a", True, 1, 2, 60.0), op("forget", "b", True, 3, 4), op("first", "b", True, 5, 6, 60.0),
    ]),
    "all get the value": (ClaimModel(), [
        op("claim", "a", 1, 1, 2, 10.0), op("claim", "b", ("value", "x"), 3, 8, 10.0),
        op("publish", "a", True, 4, 5, "x", 60.0), op("claim", "c", ("value", "x"), 6, 7, 10.0),
    ]),
    "a late publication before anybody else wins": (ClaimModel(), [
        op("claim", "a", 1, 1, 2, 1.0), op("publish", "a", True, 9, 10, "x", 60.0),
        op("claim", "b", ("value", "x"), 11, 12, 1.0),
    ]),
    "a superseded publication": (ClaimModel(), [
        op("claim", "a", 1, 1, 2, 1.0), op("claim", "b", 2, 4, 5, 9.0), op("publish", "a", False, 6, 7, "x", 60.0),
        op("publish", "b", True, 8, 9, "y", 60.0),
    ]),
    "quiet after the record": (ReservationModel(), [
        op("reserve", "a", 1, 1, 2, 30.0), op("record", "a", True, 3, 4, 60.0), op("reserve", "b", 0, 5, 6, 30.0),
    ]),
    "a taken item comes back": (QueueModel(), [
        op("push", "", True, 1, 2, "i"), op("take", "a", "i", 3, 4, 5.0), op("take", "b", "", 5, 6, 5.0),
        op("take", "b", "i", 10, 11, 5.0), op("ack", "a", False, 12, 13, "i"), op("ack", "b", True, 13.5, 14, "i"),
        op("take", "c", "", 15, 16, 5.0),
    ]),
    "an ack of what another taker has removed": (QueueModel(), [
        op("push", "", True, 1, 2, "i"), op("take", "a", "i", 3, 4, 5.0), op("take", "b", "i", 10, 11, 5.0),
        op("ack", "b", True, 12, 13, "i"), op("ack", "a", True, 14, 15, "i"),
    ]),
}  # fmt: skip
BAD: dict[str, tuple[Any, list[Operation]]] = {
    "two holders": (LockModel(), [acquire("a", 1, 1, 2), acquire("b", 2, 3, 4)]),
    "two holders, released afterwards": (LockModel(), [
        acquire("a", 1, 1, 2), acquire("b", 2, 3, 4), op("release", "a", True, 5, 6), op("release", "b", True, 7, 8),
    ]),
    "the fence goes back": (LockModel(), [
        acquire("a", 5, 1, 2), op("release", "a", True, 3, 4), acquire("b", 4, 5, 6),
    ]),
    "the same fence after a wipe": (LockModel(), [
        acquire("a", 5, 1, 2), op("wipe", "", True, 3, 4), acquire("b", 5, 5, 6),
    ]),
    "refused although free": (LockModel(), [acquire("a", 0, 1, 2)]),
    "refused long after expiry": (LockModel(), [acquire("a", 1, 1, 2), acquire("b", 0, 20, 21)]),
    "taken over before expiry": (LockModel(), [acquire("a", 1, 1, 2), acquire("b", 2, 9, 10)]),
    "a token is resumed twice": (LockModel(), [
        acquire("a", 1, 1, 2), op("resume", "a", 2, 3, 4, "b", 10.0), op("resume", "a", 3, 5, 6, "c", 10.0),
    ]),
    "resumed under the same fence": (LockModel(), [acquire("a", 1, 1, 2), op("resume", "a", 1, 3, 4, "b", 10.0)]),
    "a resumed lease is released by its former holder": (LockModel(), [
        acquire("a", 1, 1, 2), op("resume", "a", 2, 3, 4, "b", 10.0), op("release", "a", True, 5, 6),
    ]),
    "an expired hold is resumed": (LockModel(), [acquire("a", 1, 1, 2), op("resume", "a", 2, 30, 31, "b", 10.0)]),
    "a resume is refused without a reason": (LockModel(), [
        acquire("a", 1, 1, 2), op("resume", "a", 0, 3, 4, "b", 10.0),
    ]),
    "a hold is revived": (LockModel(), [acquire("a", 1, 1, 2), op("renew", "a", True, 30, 31, 10.0)]),
    "lost without a reason": (LockModel(), [acquire("a", 1, 1, 2), op("release", "a", False, 3, 4)]),
    "two first": (MarkModel(), [op("first", "a", True, 1, 2, 60.0), op("first", "b", True, 3, 4, 60.0)]),
    "none first": (MarkModel(), [op("first", "a", False, 1, 2, 60.0)]),
    "seen too long": (MarkModel(), [op("first", "a", True, 1, 2, 1.0), op("seen", "b", True, 9, 10)]),
    "two values": (ClaimModel(), [
        op("claim", "a", 1, 1, 2, 10.0), op("publish", "a", True, 3, 4, "x", 60.0),
        op("claim", "b", ("value", "y"), 5, 6, 10.0),
    ]),
    "a second execution": (ClaimModel(), [
        op("claim", "a", 1, 1, 2, 10.0), op("publish", "a", True, 3, 4, "x", 60.0), op("claim", "b", 2, 5, 6, 10.0),
    ]),
    "a late winner overwrites": (ClaimModel(), [
        op("claim", "a", 1, 1, 2, 1.0), op("claim", "b", 2, 4, 5, 9.0), op("publish", "a", True, 6, 7, "x", 60.0),
    ]),
    "sent twice in the quiet window": (ReservationModel(), [
        op("reserve", "a", 1, 1, 2, 30.0), op("record", "a", True, 3, 4, 60.0), op("reserve", "b", 2, 5, 6, 30.0),
    ]),
    "delivered after its ack": (QueueModel(), [
        op("push", "", True, 1, 2, "i"), op("take", "a", "i", 3, 4, 5.0), op("ack", "a", True, 5, 6, "i"),
        op("take", "b", "i", 7, 8, 5.0),
    ]),
    "two takers": (QueueModel(), [
        op("push", "", True, 1, 2, "i"), op("take", "a", "i", 3, 4, 50.0), op("take", "b", "i", 5, 6, 50.0),
    ]),
    "an ack of what another taker has": (QueueModel(), [
        op("push", "", True, 1, 2, "i"), op("take", "a", "i", 3, 4, 5.0), op("take", "b", "i", 10, 11, 5.0),
        op("ack", "a", True, 12, 13, "i"), op("ack", "b", True, 14, 15, "i"),
    ]),
    "an item is lost": (QueueModel(), [op("push", "", True, 1, 2, "i"), op("take", "a", "", 3, 4, 5.0)]),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_an_order_is_found(name: str) -> None:
    model, history = GOOD[name]
    verdict = check_history(history, model)
    assert verdict.ok, verdict


@pytest.mark.parametrize("name", BAD)
def test_what_has_no_order_is_refused(name: str) -> None:
    model, history = BAD[name]
    verdict = check_history(history, model)
    assert not verdict.ok
    assert not verdict.undecided
    assert verdict.blocking
    assert "not linearizable: k" in str(verdict)


def test_keys_are_independent_and_the_first_wrong_one_is_named() -> None:
    right = [each._replace(key="a") for each in GOOD["one after the other"][1]]
    wrong = [each._replace(key="b") for each in BAD["two holders"][1]]
    assert check_history(right, LockModel()).ok
    assert check_history([*right, *wrong], LockModel()).key == "b"


def test_out_of_time_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "_LOOK", 1)
    verdict = check_history(GOOD["one after the other"][1], LockModel(), timeout=-1.0)
    assert not verdict.ok
    assert verdict.undecided
    assert "undecided" in str(verdict)


# -- against all permutations


def exhaustive(history: list[Operation], model: Any) -> bool:
    """The definition itself: some of the unanswered and all others, in some order that respects the times."""
    answered = [each for each in history if each.answered]
    unanswered = [each for each in history if not each.answered]
    chosen = (
        [*answered, *some] for many in range(len(unanswered) + 1) for some in itertools.combinations(unanswered, many)
    )
    return any(_possible(order, model) for each in chosen for order in itertools.permutations(each))


def _possible(order: tuple[Operation, ...], model: Any) -> bool:
    if any(later.end < earlier.begin for earlier, later in itertools.combinations(order, 2)):
        return False
    states = {model.initial()}
    for operation in order:
        states = {after for state in states for after in model.steps(state, operation)}
    return bool(states)


class Register:
    """The model of the literature, which knows no time: write(value), read() → value."""

    def initial(self) -> int:
        return 0

    def steps(self, state: int, operation: Operation) -> Iterator[int]:
        if operation.name == "write":
            yield operation.input[0]
        elif operation.output in (state, UNANSWERED):
            yield state


def random_history(seed: int) -> tuple[Any, list[Operation]]:
    """Operations at random times with random answers: some of these histories have an order, some have none."""
    draw = random.Random(seed)
    return (Register(), _on_register(draw)) if seed % 2 else (LockModel(offer=0.1), _on_lock(draw))


def _on_register(draw: random.Random) -> list[Operation]:
    made = []
    for _ in range(6):
        begin = draw.uniform(0, 6)
        end = begin + draw.choice([0.5, 2, 4])
        if draw.random() < 0.5:
            output = draw.choice([True, True, UNANSWERED])
            made.append(op("write", "", output, begin, end if output is True else math.inf, draw.choice([1, 2])))
        else:
            made.append(op("read", "", draw.choice([0, 1, 2]), begin, end))
    return made


def _on_lock(draw: random.Random) -> list[Operation]:
    made = list[Operation]()
    for number in range(5):
        begin = draw.uniform(1, 8)
        end = begin + draw.choice([0.5, 2, 5])
        if draw.random() < 0.5:
            output: Any = draw.choice([0, number + 1, number + 1, UNANSWERED])
            name, owner = "acquire", f"o{number}"
            given: tuple[float, ...] = draw.choice([(1.0,), (6.0,)])
        else:
            output = draw.choice([True, True, False, UNANSWERED])
            owner = draw.choice([each.owner for each in made] or ["x"])
            name, given = draw.choice([("renew", (3.0,)), ("release", ())])
        made.append(op(name, owner, output, begin, math.inf if output == UNANSWERED else end, *given))
    return made


def disagreements(seeds: int) -> Iterator[int]:
    for seed in range(seeds):
        model, history = random_history(seed)
        if check_history(history, model).ok != exhaustive(history, model):
            yield seed


def test_the_search_agrees_with_all_permutations(thorough: bool) -> None:
    seeds = 3_000 if thorough else 400
    assert list(disagreements(seeds)) == []
    share = sum(check_history(history, model).ok for model, history in map(random_history, range(400))) / 400
    assert 0.1 < share < 0.9  # both answers occur


def _knows(search: Any, chosen: int, state: object) -> bool:
    """Remembers which operations were tried, and not in which state."""
    known = chosen in search._seen
    search._seen.add(chosen)
    return not known


def _ends_first(linked: Callable[..., Any]) -> Callable[..., Any]:
    return lambda operations: linked([each._replace(end=each.begin) for each in operations])


def _without_times(linked: Callable[..., Any]) -> Callable[..., Any]:
    return lambda operations: linked([each._replace(begin=0.0, end=99.0) for each in operations])


def _answered_last(linked: Callable[..., Any]) -> Callable[..., Any]:
    def only_answered(operations: list[Operation]) -> Any:
        return linked([each if each.answered else each._replace(begin=1e9) for each in operations])

    return only_answered


PLANTED: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "an operation happens at its begin": lambda patch: patch.setattr(checker, "_linked", _ends_first(checker._linked)),
    "times do not count": lambda patch: patch.setattr(checker, "_linked", _without_times(checker._linked)),
    "unanswered ones never happen": lambda patch: patch.setattr(checker, "_linked", _answered_last(checker._linked)),
    "what was taken out is not put back": lambda patch: patch.setattr(checker, "_put_back", lambda begin: None),
    "unanswered ones must happen": lambda patch: patch.setattr(Operation, "answered", property(lambda each: True)),
    "states are forgotten": lambda patch: patch.setattr(checker._Search, "_is_new", _knows),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_bug_planted_in_the_checker_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [(name, True) for name in GOOD] + [(name, False) for name in BAD]
    expected = {seed: exhaustive(history, model) for seed in range(300) for model, history in [random_history(seed)]}
    PLANTED[bug](monkeypatch)
    found = 0
    for name, ok in wrong:
        model, history = (GOOD if ok else BAD)[name]
        found += _verdict(history, model) != ok
    for seed, ok in expected.items():
        model, history = random_history(seed)
        found += _verdict(history, model) != ok
    assert found


def _verdict(history: list[Operation], model: Any) -> bool | None:
    try:
        return check_history(history, model, timeout=5.0).ok
    except (AssertionError, AttributeError, IndexError, KeyError):
        return None  # it broke, which a user would see as well


# -- real histories


def recorded_locks(once: Client, threads: int = 4, rounds: int = 15) -> Recorder:
    """What threads saw that took and released two keys."""
    recorder = Recorder()

    def work(number: int) -> None:
        draw = random.Random(number)
        for turn in range(rounds):
            key, owner = draw.choice(["a", "b"]), f"{number}.{turn}"
            with recorder.call(key, "acquire", owner, 30.0) as call:
                lease = once.try_lock(key, ttl=30.0)
                call.output = 0 if lease is None else lease.fence
            if lease is None:
                continue
            with recorder.call(key, "release", owner) as call:
                lease.release()
                call.output = True

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return recorder


def test_a_real_history_has_an_order_and_can_be_checked_again_from_its_file(tmp_path: Path) -> None:
    with Client("memory://") as once:
        recorder = recorded_locks(once)
    verdict = check_history(recorder.operations, LockModel())
    assert verdict.ok, verdict
    lines = [line_of(each) for each in recorder.operations]
    assert read_history(lines) == recorder.operations
    assert check_history(read_history(lines), LockModel()) == verdict


def test_a_store_that_grants_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a second store granted every third lock."""
    with Client("memory://") as once, Client("memory://") as other:
        grant, turns = once.try_lock, itertools.count(1)
        monkeypatch.setattr(
            once, "try_lock", lambda key, ttl: (other.try_lock if next(turns) % 3 == 0 else grant)(key, ttl=ttl)
        )
        recorder = Recorder()
        for number in range(9):
            with recorder.call("a", "acquire", str(number), 30.0) as call:
                lease = once.try_lock("a", ttl=30.0)
                call.output = 0 if lease is None else lease.fence
    assert not check_history(recorder.operations, LockModel()).ok


def test_an_operation_that_raised_stays_unanswered() -> None:
    recorder = Recorder()
    with pytest.raises(StoreError), recorder.call("a", "acquire", "me", 30.0):
        raise StoreError("no answer")
    assert recorder.operations[0].output == UNANSWERED
    assert recorder.operations[0].end == math.inf
    assert check_history(recorder.operations, LockModel()).ok


def test_a_line_that_a_killed_process_did_not_finish_is_left_out_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "history"
    recorder = Recorder(file)
    recorder.add(acquire("a", 1, 1, 2))
    recorder.close()
    whole = file.read_text().splitlines()
    assert read_history([*whole, whole[0][:20]]) == recorder.operations
    with pytest.raises(ValueError, match="not an operation"):
        read_history([whole[0][:20], *whole])
