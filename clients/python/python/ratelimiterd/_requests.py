"""What is asked of a limiter, checked, and how long it may take."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from operator import index
from time import monotonic
from typing import Any

from . import _native
from .errors import Denied, InvalidActual, InvalidRequest, Unanswered

#: The longest that one request waits, in seconds. A longer wait is several requests.
WAIT_SECONDS_MAX: int = _native.WAIT_SECONDS_MAX
AMOUNT_MAX = 2**64 - 1

#: What an allowed lease is: its ID, the moment in Unix milliseconds, how many it waited, and the limits in shadow mode that would have
#: denied it.
Allowed = tuple[str, int, int | None, list[str]]


class Reserve:
    """A reserve, and how long it goes on asking."""

    __slots__ = ("_deadline", "_is_one_lease", "_unanswered", "amounts", "job_id", "lease_id", "queue")

    def __init__(self, amounts: Mapping[str, int], wait: float, queue: str, lease_id: str | None, job_id: str | None) -> None:
        self.amounts = dict(amounts)
        self.queue = queue
        #: Of the next request; ``None`` if it gets a new one.
        self.lease_id = lease_id
        self.job_id = job_id
        self._is_one_lease = lease_id is not None
        self._unanswered = 0
        self._deadline = 0.0
        if queue != "":
            _native.check_queue(queue)
        if lease_id is not None:
            self.lease_id = _native.check_lease_id(lease_id)
        if wait != 0:
            self._deadline = monotonic() + self._checked(float(wait))

    def _checked(self, wait: float) -> float:
        if not 0 < wait < math.inf:
            raise InvalidRequest("invalid_request:wait", f"`wait` is a number of seconds from 0, not {wait}")
        if self._is_one_lease and wait > WAIT_SECONDS_MAX:
            raise InvalidRequest(
                "invalid_request:wait",
                f"a lease ID is good for one request, which waits for at most {WAIT_SECONDS_MAX} s, not {wait}; "
                "leave `lease_id` out to wait longer",
            )
        return wait

    def wait(self) -> float:
        """How long a request that is sent now may wait, in seconds."""
        if not self._deadline:
            return 0.0
        return min(max(0.0, self._deadline - monotonic()), WAIT_SECONDS_MAX)

    def pause_after_denial(self, denied: Denied) -> float | None:
        """How long to pause before it asks again, with a new lease ID; ``None`` if its time is over."""
        left = self._deadline - monotonic()
        if left <= 0 or self._is_one_lease:
            return None
        self.lease_id, self._unanswered = None, 0
        # One that has waited as long as a request may asks again at once.
        return 0.0 if denied.waited >= WAIT_SECONDS_MAX else min(denied.retry_after, left)

    def pause_after_silence(self, unanswered: Unanswered) -> float | None:
        """As :meth:`pause_after_denial`, with the same lease ID: it may be allowed already."""
        left = self._deadline - monotonic()
        self._unanswered += 1
        pause = no_answer_pause(self._unanswered, unanswered)
        if left <= pause or unanswered.lease_id is None:
            return None
        self.lease_id = unanswered.lease_id
        return pause

    def body(self, lease_id: str, wait: float) -> dict[str, Any]:
        """As the HTTP API takes it."""
        body: dict[str, Any] = {"lease_id": lease_id, "requirements": listed(self.amounts, "requirements", "amount")}
        if self.job_id is not None:
            body["job_id"] = self.job_id
        if wait:
            body["wait_ms"] = whole_ms(wait)
            body["queue"] = self.queue
        return body


def whole_ms(seconds: float) -> int:
    """Rounded up."""
    return math.ceil(seconds * 1000)


def no_answer_pause(count: int, unanswered: Unanswered) -> float:
    """How long to pause after so many requests in a row without an answer."""
    return _native.no_answer_pause(count, unanswered.retry_after, random.random())  # noqa: S311


def listed(amounts: Mapping[str, int], name: str, field: str) -> list[dict[str, Any]]:
    """As the HTTP API takes amounts."""
    return [{"key": key, field: _amount(amount, key, f"{name}[{at}].{field}")} for at, (key, amount) in enumerate(amounts.items())]


def checked_actuals(actuals: Mapping[str, int], amounts: Mapping[str, int]) -> dict[str, int]:
    """The actuals of a lease that has reserved these amounts."""
    for key in actuals:
        if key not in amounts:
            raise InvalidActual(f"invalid_actual:{key}", f"the lease has no requirement of {key}; it has {', '.join(amounts)}")
    return {key: _amount(amount, key, f"actuals[{at}].actual_amount") for at, (key, amount) in enumerate(actuals.items())}


def _amount(amount: int, key: str, field: str) -> int:
    amount = index(amount)
    if 0 <= amount <= AMOUNT_MAX:
        return amount
    raise InvalidRequest(f"invalid_request:{field}", f"the amount of {key} is 0 to {AMOUNT_MAX}, not {amount}")
