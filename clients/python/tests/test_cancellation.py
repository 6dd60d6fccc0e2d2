"""PY-01, PY-02: whoever is cancelled, interrupted or killed leaves nothing behind but what lapses by itself."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import httpx
import pytest
from conftest import Server, concurrency, rolling, until, waiters_of
from ratelimiterd import AsyncLimiter, Limiter

pytestmark = pytest.mark.anyio

TPM = "global:llm:openai:gpt-4o:tpm"
SLOTS = "global:llm:openai:gpt-4o:concurrency"
LIMITS = [rolling(TPM, 1_000), concurrency(SLOTS, 1)]
CALL = {TPM: 900, SLOTS: 1}


async def used(limiter: AsyncLimiter) -> list[int]:
    """Slots, then tokens."""
    return [state["used"] for state in await limiter.limits()]


async def has_nothing(limiter: AsyncLimiter) -> bool:
    return await used(limiter) == [0, 0]


async def test_py_02_a_task_that_is_cancelled_while_it_waits_gives_up() -> None:
    limiter = AsyncLimiter.in_process(LIMITS)
    first = await limiter.reserve(CALL)
    waiting = asyncio.ensure_future(limiter.reserve({SLOTS: 1}, wait=50))
    await until(lambda: waiters_of(limiter)() == 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert waiters_of(limiter)() == 0
    await first.complete({TPM: 0})
    assert await has_nothing(limiter)


async def test_py_02_a_task_that_is_cancelled_when_it_was_just_admitted_returns_what_it_got() -> None:
    limiter = AsyncLimiter.in_process(LIMITS)
    for _ in range(100):
        first = await limiter.reserve(CALL)
        waiting = asyncio.ensure_future(limiter.reserve(CALL, wait=50))
        await until(lambda: waiters_of(limiter)() == 1)
        # It may be admitted by now, without having run.
        await first.complete({TPM: 0})
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: has_nothing(limiter))


async def test_py_02_a_task_that_is_cancelled_during_its_call_gives_back_its_slot() -> None:
    limiter = AsyncLimiter.in_process(LIMITS)
    began = asyncio.Event()

    async def call() -> None:
        async with limiter.reserve(CALL) as lease:
            lease.settle({TPM: 30})
            began.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(call())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await used(limiter) == [0, 30], "with what is known"


async def test_py_02_a_generator_that_is_not_exhausted_settles_its_lease() -> None:
    limiter = AsyncLimiter.in_process(LIMITS)

    async def stream() -> AsyncIterator[int]:
        async with limiter.reserve(CALL) as lease:
            for tokens in range(10, 1_000, 10):
                lease.settle({TPM: tokens})
                yield tokens

    answer = stream()
    async for tokens in answer:
        if tokens == 50:
            break
    await answer.aclose()  # type: ignore[attr-defined]
    assert await used(limiter) == [0, 50]


class Held(httpx.AsyncBaseTransport):
    """Sends requests at once, and holds back the answer to the first of a path until it is told, or for ever."""

    def __init__(self, path: str) -> None:
        self._inner = httpx.AsyncHTTPTransport()
        self._path = path
        self.answered = asyncio.Event()
        self.go_on = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        if request.url.path == self._path and not self.answered.is_set():
            await response.aread()
            self.answered.set()
            await self.go_on.wait()
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


async def test_py_02_a_task_that_is_cancelled_before_it_hears_that_it_was_allowed_gives_it_back(server: Server) -> None:
    held = Held("/v1/reserve")
    async with httpx.AsyncClient(transport=held) as client, AsyncLimiter.connect(server.url, http_client=client) as limiter:
        await limiter.define(*LIMITS)
        reserving = asyncio.ensure_future(limiter.reserve(CALL))
        await held.answered.wait()
        assert await used(limiter) == [1, 900]
        reserving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reserving
        await until(lambda: has_nothing(limiter))


async def test_py_02_a_complete_goes_on_when_its_task_is_cancelled(server: Server) -> None:
    held = Held("/v1/complete")
    async with httpx.AsyncClient(transport=held) as client, AsyncLimiter.connect(server.url, http_client=client) as limiter:
        await limiter.define(*LIMITS)
        lease = await limiter.reserve(CALL)
        completing = asyncio.ensure_future(lease.complete({TPM: 30}))
        # It has not been sent yet.
        await asyncio.sleep(0)
        completing.cancel()
        await held.answered.wait()
        assert not completing.done(), "it ends when the lease has"
        held.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await completing
        assert await used(limiter) == [0, 30]


async def test_py_02_a_task_that_is_cancelled_again_and_again_ends_its_lease(server: Server) -> None:
    async with AsyncLimiter.connect(server.url) as limiter:
        await limiter.define(*LIMITS)
        for _ in range(5):
            lease = await limiter.reserve(CALL)
            completing = asyncio.ensure_future(lease.complete({TPM: 0}))
            # One that is cancelled before it began does nothing.
            await asyncio.sleep(0)
            while not completing.done():
                completing.cancel()
                await asyncio.sleep(0)
            assert await has_nothing(limiter)


async def test_py_02_a_task_that_is_cancelled_while_it_waits_at_a_server_gives_up(server: Server) -> None:
    async with AsyncLimiter.connect(server.url) as limiter:
        await limiter.define(*LIMITS)
        first = await limiter.reserve(CALL)
        waiting = asyncio.ensure_future(limiter.reserve({SLOTS: 1}, wait=50))
        await until(lambda: server.waiters() == 1)
        waiting.cancel()
        await until(lambda: server.waiters() == 0)
        await first.complete({TPM: 0})
        await until(lambda: has_nothing(limiter))


async def test_py_02_tasks_that_are_cancelled_at_any_moment_leave_nothing(server: Server) -> None:
    async with AsyncLimiter.connect(server.url) as limiter:
        await limiter.define(rolling(TPM, 1_000_000), concurrency(SLOTS, 3))

        async def call() -> None:
            async with limiter.reserve({TPM: 1_000, SLOTS: 1}, wait=50) as lease:
                await asyncio.sleep(0)
                await lease.complete({TPM: 0})

        for turns in range(0, 120, 3):
            calls = [asyncio.ensure_future(call()) for _ in range(4)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in calls:
                task.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        await until(lambda: has_nothing(limiter))


BATCH = f"""
import asyncio, sys
from ratelimiterd import AsyncLimiter
limiter = AsyncLimiter.connect(sys.argv[1])
async def call():
    async with limiter.reserve({{{SLOTS!r}: 1, {TPM!r}: 10}}, wait=50) as lease:
        lease.settle({{{TPM!r}: 0}})
        print("calls", flush=True)
        await asyncio.sleep(0.01)
async def main():
    await asyncio.gather(*(call() for _ in range(2_000)))
asyncio.run(main())
"""


def interrupted_batch(server: Server) -> int:
    """Ctrl-C on many calls at a time."""
    command = [sys.executable, "-c", BATCH, server.url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    for _ in range(20):
        process.stdout.readline()
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate()
    assert errors.endswith(b"KeyboardInterrupt\n"), errors.decode()
    return process.returncode


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the interrupt is raised inside some task, wherever it is")
async def test_py_02_a_batch_that_is_interrupted_leaves_nothing(server: Server) -> None:
    async with AsyncLimiter.connect(server.url) as limiter:
        await limiter.define(rolling(TPM, 1_000), concurrency(SLOTS, 5))
        assert interrupted_batch(server) != 0
        await until(lambda: has_nothing(limiter))


RESERVE_AND_STOP = f"""
import os, sys
from ratelimiterd import Limiter
lease = Limiter.connect(sys.argv[1]).reserve({CALL!r})
print(lease.id, flush=True)
sys.stdin.read()
"""


def reserved_by_another(server: Server) -> subprocess.Popen[bytes]:
    """A process that has reserved, and goes on for ever."""
    command = [sys.executable, "-c", RESERVE_AND_STOP, server.url]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert len(process.stdout.readline()) == 27
    return process


async def test_py_02_a_killed_process_leaves_what_lapses(server: Server) -> None:
    async with AsyncLimiter.connect(server.url) as limiter:
        await limiter.define(rolling(TPM, 1_000, 1), concurrency(SLOTS, 1, 1))
        process = reserved_by_another(server)
        process.kill()
        process.communicate()
        await until(lambda: has_nothing(limiter))


class Interrupted(httpx.BaseTransport):
    """The answer to the first request of a path is met by a keyboard interrupt."""

    def __init__(self, path: str) -> None:
        self._inner = httpx.HTTPTransport()
        self._path = path
        self._is_over = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self._inner.handle_request(request)
        if request.url.path == self._path and not self._is_over:
            response.read()
            self._is_over = True
            raise KeyboardInterrupt
        return response

    def close(self) -> None:
        self._inner.close()


@pytest.mark.parametrize("path", ["/v1/reserve", "/v1/complete"])
def test_py_02_a_thread_that_is_interrupted_ends_its_lease(server: Server, path: str) -> None:
    with httpx.Client(transport=Interrupted(path)) as client, Limiter.connect(server.url, http_client=client) as limiter:
        limiter.define(*LIMITS)
        with pytest.raises(KeyboardInterrupt), limiter.reserve(CALL) as lease:
            lease.settle({TPM: 0})
        assert [state["used"] for state in limiter.limits()] == [0, 0]


WAIT_AND_PRINT = f"""
import sys, threading
from ratelimiterd import Limiter
limits = {LIMITS!r}
limiter = Limiter.connect(sys.argv[1]) if len(sys.argv) > 1 else Limiter.in_process(limits)
if len(sys.argv) == 1:
    limiter.reserve({CALL!r})
try:
    print("waits", flush=True)
    limiter.reserve({{{SLOTS!r}: 1}}, wait=50)
except KeyboardInterrupt:
    print([state["used"] for state in limiter.limits()])
"""


def interrupted(*arguments: str) -> subprocess.Popen[bytes]:
    """A process that waits for room, and is about to be interrupted."""
    command = [sys.executable, "-c", WAIT_AND_PRINT, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"waits\n"
    return process


async def test_py_01_a_thread_that_waits_can_be_interrupted() -> None:
    process = interrupted()
    # Sooner or later it waits; an interrupt before that has the same end.
    os.kill(process.pid, signal.SIGINT)
    out, _ = process.communicate()
    assert json.loads(out) == [1, 900]
    assert process.returncode == 0


async def test_py_01_a_thread_that_waits_at_a_server_can_be_interrupted(server: Server) -> None:
    with Limiter.connect(server.url) as limiter:
        limiter.define(*LIMITS)
        limiter.reserve(CALL)
        process = interrupted(server.url)
        await until(lambda: server.waiters() == 1)
        os.kill(process.pid, signal.SIGINT)
        out, _ = process.communicate()
        assert json.loads(out) == [1, 900]
        assert server.waiters() == 0
