"""What the tests share: a server, and one way to use all four limiters."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from ratelimiterd import AsyncLease, AsyncLimiter, Lease, LimitDefinition, Limiter, LimitState

#: A test waits this long for what must come, in seconds.
PATIENCE = 60.0
ROOT = Path(__file__).parents[3]

AnyLimiter = AsyncLimiter | Limiter
AnyLease = AsyncLease | Lease


class Server:
    """A ``ratelimiterd`` of a test."""

    def __init__(self, program: str, folder: Path, *, config: str = "") -> None:
        self._program = program
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        (folder / "config.yaml").write_text(config or "{}")
        self.start()

    def start(self) -> None:
        """Starts it, and waits until it is ready."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RATELIMITER_")}
        command = [self._program, "--config", "config.yaml", "--listen", self.url.removeprefix("http://")]
        self._log = (self._folder / "log").open("ab")
        self._process = subprocess.Popen(command, cwd=self._folder, env=environment, stdout=self._log, stderr=self._log)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if httpx.get(f"{self.url}/readyz").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.02)
        pytest.fail((self._folder / "log").read_text())

    def kill(self) -> None:
        """``kill -9``."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    def waiters(self) -> int:
        """How many requests wait at it."""
        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("ratelimiter_waiters "))


@pytest.fixture(scope="session")
def program() -> str:
    """The server's program."""
    built = ROOT / "target" / "debug" / "ratelimiterd"
    found = os.environ.get("RATELIMITERD_BIN") or shutil.which("ratelimiterd") or (str(built) if built.exists() else None)
    if found is None:
        if os.environ.get("RATELIMITERD_REQUIRED"):
            pytest.fail("no ratelimiterd")
        pytest.skip("NOT RUN: no ratelimiterd (RATELIMITERD_BIN, on the PATH, or built by `cargo build`)")
    return found


@pytest.fixture
def server(program: str, tmp_path: Path) -> Iterator[Server]:
    server = Server(program, tmp_path)
    yield server
    server.kill()


class AnyKind:
    """A limiter of any kind, used like one for coroutines."""

    def __init__(self, limiter: AnyLimiter, waiters: Callable[[], int]) -> None:
        self._limiter = limiter
        self.waiters = waiters
        # Each that waits has a thread.
        self._threads = ThreadPoolExecutor(64)

    async def reserve(self, amounts: Mapping[str, int], **options: Any) -> AnyLease:
        if isinstance(self._limiter, AsyncLimiter):
            return await self._limiter.reserve(amounts, **options)
        lease: Lease = await self._in_thread(partial(self._limiter.reserve, amounts, **options))
        return lease

    async def complete(self, lease: AnyLease | str, actuals: Mapping[str, int] | None = None) -> None:
        if isinstance(lease, str):
            await self._run(self._limiter.complete, lease, actuals)
        else:
            await self._run(lease.complete, actuals)

    async def renew(self, lease: AnyLease, amounts: Mapping[str, int] | None = None) -> Any:
        return await self._run(lease.renew, amounts)

    async def define(self, *limits: LimitDefinition) -> None:
        await self._run(self._limiter.define, *limits)

    async def delete(self, key: str) -> None:
        await self._run(self._limiter.delete, key)

    async def limits(self, prefix: str = "", template: str | None = None) -> list[LimitState]:
        states: list[LimitState] = await self._run(partial(self._limiter.limits, template=template), prefix)
        return states

    async def close(self) -> None:
        await close(self._limiter)

    async def used(self, key: str) -> int:
        return next(state["used"] for state in await self.limits(key) if state["key"] == key)

    @asynccontextmanager
    async def block(self, amounts: Mapping[str, int]) -> AsyncIterator[AnyLease]:
        """A ``with`` block."""
        if isinstance(self._limiter, AsyncLimiter):
            async with self._limiter.reserve(amounts) as lease:
                yield lease
        else:
            with self._limiter.reserve(amounts) as lease:
                yield lease

    async def _run(self, method: Callable[..., Any], *arguments: Any) -> Any:
        if isinstance(self._limiter, AsyncLimiter):
            return await method(*arguments)
        return await self._in_thread(partial(method, *arguments))

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


MakeLimiter = Callable[[Sequence[LimitDefinition]], AbstractAsyncContextManager[AnyKind]]


@pytest.fixture(params=["in_process", "async_in_process", "server", "async_server"])
def limiter_with(request: pytest.FixtureRequest) -> MakeLimiter:
    """Makes a limiter with these limits: of each kind in turn."""
    kind: str = request.param

    @asynccontextmanager
    async def make(limits: Sequence[LimitDefinition]) -> AsyncIterator[AnyKind]:
        if kind.endswith("server"):
            server: Server = request.getfixturevalue("server")
            remote = AsyncLimiter.connect(server.url) if kind.startswith("async") else Limiter.connect(server.url)
            limiter = AnyKind(remote, server.waiters)
            await limiter.define(*limits)
        else:
            local = AsyncLimiter.in_process(limits) if kind.startswith("async") else Limiter.in_process(limits)
            limiter = AnyKind(local, waiters_of(local))
        try:
            yield limiter
        finally:
            await close(limiter._limiter)

    return make


async def close(limiter: AnyLimiter) -> None:
    if isinstance(limiter, AsyncLimiter):
        await limiter.aclose()
    else:
        limiter.close()


def waiters_of(limiter: AnyLimiter) -> Callable[[], int]:
    native: Any = limiter._limiter
    count: Callable[[], int] = native._native.waiters
    return count


async def until(holds: Callable[[], bool | Awaitable[bool]]) -> None:
    """Waits for what must come."""
    deadline = time.monotonic() + PATIENCE
    while True:
        held = holds()
        if held if isinstance(held, bool) else await held:
            return
        assert time.monotonic() < deadline, "it never came"
        await asyncio.sleep(0.005)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def rolling(key: str, capacity: int, window_seconds: int = 60) -> LimitDefinition:
    return {"key": key, "kind": "rolling", "capacity": capacity, "window_seconds": window_seconds}


def concurrency(key: str, capacity: int, timeout_seconds: int = 600) -> LimitDefinition:
    return {"key": key, "kind": "concurrency", "capacity": capacity, "timeout_seconds": timeout_seconds}
