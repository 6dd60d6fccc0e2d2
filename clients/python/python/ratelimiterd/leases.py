"""Leases: what was reserved, until it is completed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timezone
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from .errors import LimiterError

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._requests import Allowed, Reserve

_log = logging.getLogger("ratelimiterd")


class _Ends(Protocol):
    def complete(self, lease_id: str, actuals: dict[str, int] | None, job_id: str | None) -> None: ...
    def renew(self, lease_id: str, number: int, amounts: dict[str, int]) -> int: ...


class _AsyncEnds(Protocol):
    async def complete(self, lease_id: str, actuals: dict[str, int] | None, job_id: str | None) -> None: ...
    async def renew(self, lease_id: str, number: int, amounts: dict[str, int]) -> int: ...


class _Lease:
    """What both kinds of leases are."""

    def __init__(self, request: Reserve, allowed: Allowed) -> None:
        #: Identifies the lease, as a ULID.
        self.id, self._reserved_at_ms, self._waited_ms, shadow_denied = allowed
        #: The limits in shadow mode that would have denied it.
        self.shadow_denied_keys = tuple(shadow_denied)
        #: Whether it was completed.
        self.is_completed = False
        self._job_id = request.job_id
        self._settled: dict[str, int] | None = None
        self._renews = 0

    @property
    def reserved_at(self) -> datetime:
        """When its reservations began, in UTC, by the clock of the limiter."""
        return _moment(self._reserved_at_ms)

    @property
    def waited(self) -> float:
        """How long it waited for room, in seconds."""
        return (self._waited_ms or 0) / 1000

    def settle(self, actuals: Mapping[str, int]) -> None:
        """Notes what was really used. At the end of the ``with`` block the lease is completed with it."""
        self._settled = dict(actuals)

    def _next_number(self) -> int:
        self._renews += 1
        return self._renews

    def __repr__(self) -> str:
        state = "completed" if self.is_completed else "open"
        return f"<{type(self).__name__} {self.id} {state}>"


class Lease(_Lease):
    """What a call has reserved. As a context manager, it is completed at the end of the block.

    A lease that is never completed lapses: its concurrency holds with their timeouts, its rolling reservations with their windows.
    """

    def __init__(self, limiter: _Ends, request: Reserve, allowed: Allowed) -> None:
        super().__init__(request, allowed)
        self._limiter = limiter

    def complete(self, actuals: Mapping[str, int] | None = None) -> None:
        """Ends the lease: gives back its concurrency holds, and corrects its reservations to ``actuals``, what was really used.

        A key without an actual keeps its full reservation. Only the first complete of a lease counts.
        """
        self._limiter.complete(self.id, None if actuals is None else dict(actuals), self._job_id)
        self.is_completed = True

    def renew(self, amounts: Mapping[str, int] | None = None) -> datetime:
        """Restarts the timeouts of its concurrency holds, and sets what it holds of the keys in ``amounts``, all or none.

        Returns until when it can be renewed again. Raises :class:`~ratelimiterd.Denied` if there is no room for more.
        """
        lapses_at_ms = self._limiter.renew(self.id, self._next_number(), dict(amounts or {}))
        return _moment(lapses_at_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.is_completed:
            return
        try:
            self.complete(self._settled)
        except LimiterError as failed:
            if error is None:
                raise
            _log.warning("lease %s was not completed, it lapses by itself: %s", self.id, failed)


class AsyncLease(_Lease):
    """As :class:`Lease`, for coroutines."""

    def __init__(self, limiter: _AsyncEnds, request: Reserve, allowed: Allowed) -> None:
        super().__init__(request, allowed)
        self._limiter = limiter

    async def complete(self, actuals: Mapping[str, int] | None = None) -> None:
        """As :meth:`Lease.complete`. If the task is cancelled meanwhile, the complete goes on."""
        actuals = None if actuals is None else dict(actuals)
        await self._limiter.complete(self.id, actuals, self._job_id)
        self.is_completed = True

    async def renew(self, amounts: Mapping[str, int] | None = None) -> datetime:
        """As :meth:`Lease.renew`."""
        number = self._next_number()
        return _moment(await self._limiter.renew(self.id, number, dict(amounts or {})))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.is_completed:
            return
        try:
            await self.complete(self._settled)
        except LimiterError as failed:
            if error is None:
                raise
            _log.warning("lease %s was not completed, it lapses by itself: %s", self.id, failed)


def _moment(unix_ms: int) -> datetime:
    return datetime.fromtimestamp(unix_ms / 1000, timezone.utc)
