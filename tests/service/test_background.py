"""Background work goes on without its caller, ends in time, and its errors are not lost."""

from __future__ import annotations

import asyncio

from solely.kit import Background

ENDS = 10.0  # seconds: far longer than anything here takes


async def test_work_goes_on_when_its_caller_is_cancelled_and_is_waited_for() -> None:
    go_on, done = asyncio.Event(), list[str]()
    background = Background(lambda error: None)

    async def work() -> None:
        await go_on.wait()
        done.append("done")

    async def caller() -> None:
        await asyncio.wait((background.start(work()),))

    calling = asyncio.create_task(caller())
    await asyncio.sleep(0)
    calling.cancel()
    await asyncio.wait((calling,))
    go_on.set()
    await background.finish(ENDS)
    assert done == ["done"]
    await background.finish(0.0)  # nothing is left


async def test_what_does_not_end_in_time_is_cancelled() -> None:
    background, cancelled = Background(lambda error: None), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    background.start(work())
    await asyncio.sleep(0)
    await background.finish(0.0)
    assert cancelled.is_set()


async def test_errors_are_reported() -> None:
    errors: list[BaseException] = []
    background = Background(errors.append)

    async def work() -> None:
        raise ValueError("of the test")

    background.start(work())
    await background.finish(ENDS)
    assert [str(each) for each in errors] == ["of the test"]
