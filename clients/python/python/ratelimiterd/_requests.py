"""What is asked of a limiter, checked, and how long it may take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import index
from time import monotonic
from typing import Any

from . import _native
from .errors import Denied, InvalidRequest

#: The longest that one request waits, in seconds. A longer wait is several requests.
WAIT_SECONDS_MAX: int = _native.WAIT_SECONDS_MAX

#: What an allowed lease is: its ID, the moment in Unix milliseconds, how many it waited, and the limits in shadow mode that would have
#: denied it.
Allowed = tuple[str, int, int | None, list[str]]


class Reserve:
    """A reserve, and how long it goes on asking."""

    __slots__ = ("_deadline", "amounts", "job_id", "lease_id", "queue", "wait")

    def __init__(self, amounts: Mapping[str, int], wait: float, queue: str, lease_id: str | None, job_id: str | None) -> None:
        self.amounts = dict(amounts)
        #: How long the next request waits, in seconds.
        self.wait = wait
        self.queue = queue
        self.lease_id = lease_id
        self.job_id = job_id
        self._deadline = 0.0
        if queue:
            _native.check_queue(queue)
        if wait:
            self._begin()

    def _begin(self) -> None:
        if not 0 < self.wait < math.inf:
            raise InvalidRequest("invalid_request:wait", f"`wait` is a number of seconds from 0, not {self.wait}")
        if self.lease_id is not None and self.wait > WAIT_SECONDS_MAX:
            raise InvalidRequest(
                "invalid_request:wait",
                f"a lease ID is good for one request, which waits for at most {WAIT_SECONDS_MAX} s, not {self.wait}; "
                "leave `lease_id` out to wait longer",
            )
        self._deadline = monotonic() + self.wait
        self.wait = min(self.wait, WAIT_SECONDS_MAX)

    @property
    def wait_ms(self) -> int | None:
        """The wait, rounded up; ``None`` if it does not wait."""
        return math.ceil(self.wait * 1000) if self.wait else None

    def pause_after(self, denied: Denied) -> float | None:
        """How long to pause before it asks again; ``None`` if its time is over."""
        left = self._deadline - monotonic()
        if left <= 0 or self.lease_id is not None:
            return None
        # One that has waited as long as a request may asks again at once.
        pause = 0.0 if denied.waited >= WAIT_SECONDS_MAX else min(denied.retry_after, left)
        self.wait = min(left - pause, WAIT_SECONDS_MAX)
        return pause

    def body(self, lease_id: str, *, may_wait: bool) -> dict[str, Any]:
        """As the HTTP API takes it."""
        body: dict[str, Any] = {"lease_id": lease_id, "requirements": listed(self.amounts)}
        if self.job_id is not None:
            body["job_id"] = self.job_id
        if may_wait:
            body["wait_ms"] = self.wait_ms
            body["queue"] = self.queue
        return body


def listed(amounts: Mapping[str, int], field: str = "amount") -> list[dict[str, Any]]:
    """As the HTTP API takes amounts."""
    return [{"key": key, field: index(amount)} for key, amount in amounts.items()]
