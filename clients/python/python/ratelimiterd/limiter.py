"""The limiter for threads, and its twin for coroutines."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine, Generator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._in_process import AsyncInProcess, InProcess
from ._requests import Reserve
from .errors import Closed, Denied, Unanswered
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
        self._is_closed = False

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

        Without room it waits up to ``wait`` seconds, and then raises :class:`~ratelimiterd.Denied`; so long it also asks a server again
        that does not answer. Who waits is served in the order of arrival inside one ``queue``, such as a tenant; queues take turns. After a
        minute it gives up its place and takes one at the end. ``lease_id`` is for repeating a request that was
        :class:`~ratelimiterd.Unanswered`; ``job_id`` is for logs and operators.
        """
        request = Reserve(amounts, wait, queue, lease_id, job_id)
        limiter = self._opened()
        while True:
            try:
                allowed = limiter.reserve(request)
            except Denied as denied:
                pause = request.pause_after_denial(denied)
                if pause is None:
                    raise
            except Unanswered as unanswered:
                pause = request.pause_after_silence(unanswered)
                if pause is None:
                    raise
            else:
                return Lease(limiter, request, allowed)
            time.sleep(pause)

    def complete(self, lease_id: str, actuals: Mapping[str, int] | None = None) -> None:
        """Completes a lease that another process or function has reserved."""
        self._opened().complete(lease_id, None if actuals is None else dict(actuals), None)

    def define(self, *limits: LimitDefinition) -> None:
        """Creates or changes limits, all or none. At a server this needs a token that may ``admin``."""
        self._opened().define({"limits": limits})

    def delete(self, key: str) -> None:
        """Deletes a limit. Leases that hold it complete without error."""
        self._opened().delete(key)

    def limits(self, prefix: str = "", *, template: str | None = None) -> list[LimitState]:
        """The limits whose keys begin with ``prefix``, with their current use, sorted by key.

        With ``template`` those that were made from this template, and are in use or owe a debt.
        """
        return self._opened().limits(prefix, template)

    def close(self) -> None:
        """Reserves no more. Open leases can be completed; with the last of them, or now, the connections are closed."""
        self._is_closed = True
        self._limiter.close()

    def _opened(self) -> InProcess | Http:
        if self._is_closed:
            raise Closed("closed", "this limiter was closed")
        return self._limiter

    def __repr__(self) -> str:
        return f"<Limiter {self._limiter!r}>"

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
        self._is_closed = False

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
        """As :meth:`Limiter.connect`. It belongs to one event loop at a time."""
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
        return Reserving(_reserved(self._opened(), Reserve(amounts, wait, queue, lease_id, job_id)))

    async def complete(self, lease_id: str, actuals: Mapping[str, int] | None = None) -> None:
        """As :meth:`Limiter.complete`."""
        await self._opened().complete(lease_id, None if actuals is None else dict(actuals), None)

    async def define(self, *limits: LimitDefinition) -> None:
        """As :meth:`Limiter.define`."""
        await self._opened().define({"limits": limits})

    async def delete(self, key: str) -> None:
        """As :meth:`Limiter.delete`."""
        await self._opened().delete(key)

    async def limits(self, prefix: str = "", *, template: str | None = None) -> list[LimitState]:
        """As :meth:`Limiter.limits`."""
        return await self._opened().limits(prefix, template)

    async def aclose(self) -> None:
        """As :meth:`Limiter.close`."""
        self._is_closed = True
        await self._limiter.aclose()

    def _opened(self) -> AsyncInProcess | AsyncHttp:
        if self._is_closed:
            raise Closed("closed", "this limiter was closed")
        return self._limiter

    def __repr__(self) -> str:
        return f"<AsyncLimiter {self._limiter!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class Reserving(Coroutine[Any, Any, AsyncLease]):
    """A reserve that was not sent yet: to be awaited, entered, or made a task of; once."""

    __slots__ = ("_coroutine", "_lease")

    def __init__(self, coroutine: Coroutine[Any, Any, AsyncLease]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, AsyncLease]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    async def __aenter__(self) -> AsyncLease:
        self._lease = await self._coroutine
        return self._lease

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        await self._lease.__aexit__(kind, error, traceback)


async def _reserved(limiter: AsyncInProcess | AsyncHttp, request: Reserve) -> AsyncLease:
    while True:
        try:
            allowed = await limiter.reserve(request)
        except Denied as denied:
            pause = request.pause_after_denial(denied)
            if pause is None:
                raise
        except Unanswered as unanswered:
            pause = request.pause_after_silence(unanswered)
            if pause is None:
                raise
        else:
            return AsyncLease(limiter, request, allowed)
        await asyncio.sleep(pause)
