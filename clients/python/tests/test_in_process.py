"""PY-01: the memory backend inside the process."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import concurrency, rolling, until, waiters_of
from ratelimiterd import AsyncLimiter, Denied, InvalidRequest, Limiter

pytestmark = pytest.mark.anyio

SLOTS = "slots"


def test_py_01_limits_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "limits.json"
    path.write_text(json.dumps({"version": 2, "limits": [rolling("rpm", 3)]}))
    for given in (path, str(path)):
        assert Limiter.in_process(given).limits()[0]["capacity"] == 3
        assert AsyncLimiter.in_process(given)
    with pytest.raises(FileNotFoundError):
        Limiter.in_process("no/such/limits.json")
    path.write_text("[}")
    with pytest.raises(InvalidRequest) as caught:
        Limiter.in_process(path)
    assert str(path) in caught.value.message


def test_py_01_what_is_not_understood_in_a_limits_file_is_a_warning() -> None:
    document = {"version": 2, "limits": [{**rolling("a", 1), "mod": "shadow"}, {"key": "b", "kind": "rolin", "capacity": 1}]}
    with pytest.warns(UserWarning, match="limits: ") as warned:
        limiter = Limiter.in_process(document)
    told = " ".join(str(warning.message) for warning in warned)
    assert "mod" in told
    assert "rolin" in told
    assert warned[0].filename == __file__
    assert [state["key"] for state in limiter.limits()] == ["a"]


def test_py_01_a_list_of_definitions_may_have_all_that_a_file_may() -> None:
    limiter = Limiter.in_process([rolling("tenant:*:rpm", 1), {"key": "m", "kind": "calendar", "capacity": 1, "period": "month"}])
    limiter.reserve({"tenant:acme:rpm": 1, "m": 1})


async def test_py_01_a_reserve_is_a_coroutine() -> None:
    limiter = AsyncLimiter.in_process([concurrency(SLOTS, 5)])
    await asyncio.create_task(limiter.reserve({SLOTS: 1}))
    await asyncio.gather(limiter.reserve({SLOTS: 1}), asyncio.wait_for(limiter.reserve({SLOTS: 1}), 50))
    once = limiter.reserve({SLOTS: 1})
    async with once:
        with pytest.raises(RuntimeError):
            await once
    assert (await limiter.limits())[0]["used"] == 3
    with pytest.warns(RuntimeWarning, match="never awaited"):
        limiter.reserve({SLOTS: 1})
        gc.collect()


def test_py_01_all_errors_of_a_limits_file_are_told() -> None:
    with pytest.raises(InvalidRequest) as caught:
        Limiter.in_process([rolling("two words", 1), {**rolling("b", 1), "kind": "concurrency"}])
    assert "two words" in caught.value.message
    assert "timeout_seconds" in caught.value.message
    assert caught.value.field == "limits"


async def test_py_01_the_event_loop_goes_on_while_a_task_waits() -> None:
    limiter = AsyncLimiter.in_process([concurrency(SLOTS, 1)])
    first = await limiter.reserve({SLOTS: 1})
    turns = 0
    waiting = asyncio.ensure_future(limiter.reserve({SLOTS: 1}, wait=50))
    await until(lambda: waiters_of(limiter)() == 1)
    for _ in range(1_000):
        await asyncio.sleep(0)
        turns += 1
    assert not waiting.done()
    await first.complete()
    await waiting
    assert turns == 1_000


def test_py_01_other_threads_run_while_one_waits() -> None:
    limiter = Limiter.in_process([concurrency(SLOTS, 1)])
    first = limiter.reserve({SLOTS: 1})
    waited: list[float] = []
    thread = threading.Thread(target=lambda: waited.append(limiter.reserve({SLOTS: 1}, wait=50).waited))
    thread.start()
    while waiters_of(limiter)() == 0:
        pass
    # If the thread had kept the interpreter's lock, this would never run.
    first.complete()
    thread.join()
    assert len(waited) == 1


def test_py_01_threads_never_get_more_than_there_is() -> None:
    limiter = Limiter.in_process([concurrency(SLOTS, 4), rolling("calls", 1_000_000)])
    lock, running, most = threading.Lock(), 0, 0

    def calls() -> None:
        nonlocal running, most
        for _ in range(200):
            with limiter.reserve({SLOTS: 1, "calls": 1}, wait=50):
                with lock:
                    running += 1
                    most = max(most, running)
                with lock:
                    running -= 1

    threads = [threading.Thread(target=calls) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= most <= 4
    assert [state["used"] for state in limiter.limits()] == [16 * 200, 0]


async def test_py_01_many_tasks_wait_and_all_are_served() -> None:
    limiter = AsyncLimiter.in_process([concurrency(SLOTS, 10)])

    async def call() -> None:
        async with limiter.reserve({SLOTS: 1}, wait=50):
            await asyncio.sleep(0)

    await asyncio.gather(*(call() for _ in range(2_000)))
    assert (await limiter.limits())[0]["used"] == 0


async def test_py_01_a_wait_longer_than_a_request_may_wait_is_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratelimiterd._requests.WAIT_SECONDS_MAX", 0.02)
    limiter = AsyncLimiter.in_process([concurrency(SLOTS, 1)])
    first = await limiter.reserve({SLOTS: 1})
    waiting = asyncio.ensure_future(limiter.reserve({SLOTS: 1}, wait=50))
    # It gives up and asks again.
    for count in (1, 0, 1, 0, 1):
        await until(lambda count=count: waiters_of(limiter)() == count)  # type: ignore[misc]
    await first.complete()
    await waiting
    with pytest.raises(Denied):
        await limiter.reserve({SLOTS: 1}, wait=0.05)


# Newer Pythons warn that a fork of a process with threads may hang.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_py_01_a_limiter_does_not_outlive_a_fork() -> None:
    limiter = Limiter.in_process([concurrency(SLOTS, 1)])
    limiter.reserve({SLOTS: 1})
    child = os.fork()
    if child == 0:
        status = 1
        try:
            try:
                limiter.reserve({SLOTS: 1})
            except RuntimeError as error:
                status = 0 if "forked" in str(error) else 2
            own = Limiter.in_process([concurrency(SLOTS, 1)])
            own.reserve({SLOTS: 1})
            try:
                own.reserve({SLOTS: 1}, wait=0.01)
                status = 3
            except Denied:
                del limiter, own
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert limiter.limits()[0]["used"] == 1


EXITS = """
import sys, threading
from ratelimiterd import Limiter
limiter = Limiter.in_process([{"key": "slots", "kind": "concurrency", "capacity": 1, "timeout_seconds": 60}])
limiter.reserve({"slots": 1})
for _ in range(20):
    threading.Thread(target=lambda: limiter.reserve({"slots": 1}, wait=50), daemon=True).start()
while limiter._limiter._native.waiters() < 20:
    pass
"""


def test_py_01_the_interpreter_ends_while_threads_wait() -> None:
    ended = subprocess.run([sys.executable, "-c", EXITS], capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


ABANDONS = """
import asyncio
from ratelimiterd import AsyncLimiter
async def main():
    limiter = AsyncLimiter.in_process([{"key": "slots", "kind": "concurrency", "capacity": 1, "timeout_seconds": 60}])
    await limiter.reserve({"slots": 1})
    asyncio.ensure_future(limiter.reserve({"slots": 1}, wait=50))
    await asyncio.sleep(0)
asyncio.run(main())
"""


def test_py_01_an_event_loop_ends_while_a_task_waits() -> None:
    ended = subprocess.run([sys.executable, "-c", ABANDONS], capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
