"""Leases: what was reserved, until it is completed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timezone
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from ._requests import checked_actuals
from .errors import InvalidActual, LimiterError, Unanswered

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
        self._amounts = request.amounts
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
        """Notes what was really used, in place of what was noted before. The lease is completed with it."""
        self._settled = checked_actuals(actuals, self._amounts)

    def _next_number(self) -> int:
        self._renews += 1
        return self._renews

    def _is_raised(self, failed: LimiterError, error: BaseException | None) -> bool:
        """Whether to raise what a complete at the end of a block has raised. It replaces neither the block's error nor, if the server is
        away and nothing can be done, its result.
        """
        if error is None and not isinstance(failed, Unanswered):
            return True
        _log.warning("lease %s was not completed as it should be: %s", self.id, failed)
        return False

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

        Without ``actuals`` those of :meth:`settle` count. A key without an actual keeps its full reservation. Only the first complete
        of a lease counts.
        """
        if actuals is not None:
            self.settle(actuals)
        try:
            self._limiter.complete(self.id, self._settled, self._job_id)
        except InvalidActual:
            # Nothing was applied.
            self._settled = None
            raise
        except Exception:
            raise
        except BaseException:
            # Interrupted: nobody knows whether it was completed.
            self._limiter.complete(self.id, self._settled, self._job_id)
            self.is_completed = True
            raise
        self.is_completed = True

    def renew(self, amounts: Mapping[str, int] | None = None) -> datetime:
        """Restarts the timeouts of its concurrency holds, and sets what it holds of the keys in ``amounts``, all or none.

        Returns until when it can be renewed again. Raises :class:`~ratelimiterd.Denied` if there is no room for more.
        """
        lapses_at_ms = self._limiter.renew(self.id, self._next_number(), dict(amounts or {}))
        return _moment(lapses_at_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self.is_completed:
            return
        try:
            self.complete()
        except InvalidActual as failed:
            # Gives back the holds at least.
            self.complete()
            if self._is_raised(failed, error):
                raise
        except LimiterError as failed:
            if self._is_raised(failed, error):
                raise


class AsyncLease(_Lease):
    """As :class:`Lease`, for coroutines."""

    def __init__(self, limiter: _AsyncEnds, request: Reserve, allowed: Allowed) -> None:
        super().__init__(request, allowed)
        self._limiter = limiter

    async def complete(self, actuals: Mapping[str, int] | None = None) -> None:
        """As :meth:`Lease.complete`. A task that is cancelled meanwhile ends when the lease has."""
        if actuals is not None:
            self.settle(actuals)
        try:
            await self._limiter.complete(self.id, self._settled, self._job_id)
        except InvalidActual:
            # Nothing was applied.
            self._settled = None
            raise
        self.is_completed = True

    async def renew(self, amounts: Mapping[str, int] | None = None) -> datetime:
        """As :meth:`Lease.renew`."""
        number = self._next_number()
        return _moment(await self._limiter.renew(self.id, number, dict(amounts or {})))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self.is_completed:
            return
        try:
            await self.complete()
        except InvalidActual as failed:
            # Gives back the holds at least.
            await self.complete()
            if self._is_raised(failed, error):
                raise
        except LimiterError as failed:
            if self._is_raised(failed, error):
                raise


def _moment(unix_ms: int) -> datetime:
    return datetime.fromtimestamp(unix_ms / 1000, timezone.utc)
