"""The limiter for threads, and its twin for coroutines."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Generator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._in_process import AsyncInProcess, InProcess
from ._requests import Reserve
from .errors import Denied
from .leases import AsyncLease, Lease
from .limits import LimitDefinition, LimitState

if TYPE_CHECKING:
    import httpx
    from typing_extensions import Self

    from ._http import AsyncHttp, Http

Limits = str | os.PathLike[str] | Sequence[LimitDefinition] | Mapping[str, Any]


class Limiter:
    """Lets a call go ahead only when all its limits have room. Threads may share it.

    >>> limiter = Limiter.in_process([
    ...     {"key": "global:llm:openai:gpt-4o:tpm", "kind": "rolling", "capacity": 1000, "window_seconds": 60},
    ... ])
    >>> with limiter.reserve({"global:llm:openai:gpt-4o:tpm": 900}) as lease:
    ...     lease.settle({"global:llm:openai:gpt-4o:tpm": 74})
    >>> limiter.limits()[0]["available"]
    926
    """

    def __init__(self, limiter: InProcess | Http) -> None:
        """Use :meth:`in_process` or :meth:`connect`."""
        self._limiter = limiter

    @classmethod
    def in_process(cls, limits: Limits) -> Self:
        """A limiter in this process, with nothing to deploy.

        ``limits`` is the path of a limits file, or what is in one: a list of definitions. The limits are those of this process; several
        processes share their limits by a server.
        """
        return cls(InProcess(limits))

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 2.0,
        http_client: httpx.Client | None = None,
    ) -> Self:
        """The limiter of a server, such as ``http://ratelimiter:8080``. Does not connect yet.

        ``timeout`` is that of one request in seconds; what waits for room takes longer by its wait. A request without an answer is
        repeated for two seconds, and then raises :class:`~ratelimiterd.Unanswered`. ``http_client`` is for proxies, certificates and
        the like; it is not closed.
        """
        # Whoever limits one process needs no HTTP client.
        from ._http import Http

        return cls(Http(url, token, timeout, http_client))

    def reserve(
        self,
        amounts: Mapping[str, int],
        *,
        wait: float = 0.0,
        queue: str = "",
        lease_id: str | None = None,
        job_id: str | None = None,
    ) -> Lease:
        """Reserves these amounts of all these limits, or nothing, and returns the lease.

        Without room it waits up to ``wait`` seconds, and then raises :class:`~ratelimiterd.Denied`. Who waits is served in the order of
        arrival inside one ``queue``, such as a tenant; queues take turns. ``lease_id`` is for repeating a request that was
        :class:`~ratelimiterd.Unanswered`; ``job_id`` is for logs and operators.
        """
        request = Reserve(amounts, wait, queue, lease_id, job_id)
        while True:
            try:
                allowed = self._limiter.reserve(request)
            except Denied as denied:
                pause = request.pause_after(denied)
                if pause is None:
                    raise
                time.sleep(pause)
            else:
                return Lease(self._limiter, request, allowed)

    def complete(self, lease_id: str, actuals: Mapping[str, int] | None = None) -> None:
        """Completes a lease that another process or function has reserved."""
        self._limiter.complete(lease_id, None if actuals is None else dict(actuals), None)

    def define(self, *limits: LimitDefinition) -> None:
        """Creates or changes limits, all or none. At a server this needs a token that may ``admin``."""
        self._limiter.define({"limits": limits})

    def delete(self, key: str) -> None:
        """Deletes a limit. Leases that hold it complete without error."""
        self._limiter.delete(key)

    def limits(self, prefix: str = "") -> list[LimitState]:
        """The limits whose keys begin with ``prefix``, with their current use, sorted by key."""
        return self._limiter.limits(prefix)

    def close(self) -> None:
        """Closes the connections."""
        self._limiter.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class AsyncLimiter:
    """As :class:`Limiter`, for coroutines. It never blocks the event loop."""

    def __init__(self, limiter: AsyncInProcess | AsyncHttp) -> None:
        """Use :meth:`in_process` or :meth:`connect`."""
        self._limiter = limiter

    @classmethod
    def in_process(cls, limits: Limits) -> Self:
        """As :meth:`Limiter.in_process`."""
        return cls(AsyncInProcess(limits))

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 2.0,
        http_client: httpx.AsyncClient | None = None,
    ) -> Self:
        """As :meth:`Limiter.connect`. Its connections belong to one event loop."""
        from ._http import AsyncHttp

        return cls(AsyncHttp(url, token, timeout, http_client))

    def reserve(
        self,
        amounts: Mapping[str, int],
        *,
        wait: float = 0.0,
        queue: str = "",
        lease_id: str | None = None,
        job_id: str | None = None,
    ) -> Reserving:
        """As :meth:`Limiter.reserve`: ``lease = await limiter.reserve(…)``, or ``async with limiter.reserve(…) as lease:``.

        If the task is cancelled while it waits, it gives up, and what it may have got meanwhile is returned.
        """
        return Reserving(self._limiter, Reserve(amounts, wait, queue, lease_id, job_id))

    async def complete(self, lease_id: str, actuals: Mapping[str, int] | None = None) -> None:
        """As :meth:`Limiter.complete`."""
        await self._limiter.complete(lease_id, None if actuals is None else dict(actuals), None)

    async def define(self, *limits: LimitDefinition) -> None:
        """As :meth:`Limiter.define`."""
        await self._limiter.define({"limits": limits})

    async def delete(self, key: str) -> None:
        """As :meth:`Limiter.delete`."""
        await self._limiter.delete(key)

    async def limits(self, prefix: str = "") -> list[LimitState]:
        """As :meth:`Limiter.limits`."""
        return await self._limiter.limits(prefix)

    async def aclose(self) -> None:
        """Waits for completes that go on in the background, and closes the connections."""
        await self._limiter.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class Reserving:
    """A reserve that was not sent yet: to be awaited, or entered."""

    __slots__ = ("_lease", "_limiter", "_request")

    def __init__(self, limiter: AsyncInProcess | AsyncHttp, request: Reserve) -> None:
        self._limiter = limiter
        self._request = request
        self._lease: AsyncLease | None = None

    def __await__(self) -> Generator[Any, None, AsyncLease]:
        return self._reserve().__await__()

    async def _reserve(self) -> AsyncLease:
        request = self._request
        while True:
            try:
                allowed = await self._limiter.reserve(request)
            except Denied as denied:
                pause = request.pause_after(denied)
                if pause is None:
                    raise
                await asyncio.sleep(pause)
            else:
                return AsyncLease(self._limiter, request, allowed)

    async def __aenter__(self) -> AsyncLease:
        self._lease = await self._reserve()
        return self._lease

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._lease is not None:
            await self._lease.__aexit__(kind, error, traceback)
