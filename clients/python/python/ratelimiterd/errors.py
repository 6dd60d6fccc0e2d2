"""What may be in the way of a call, and what may go wrong.

Every class has the stable ``code`` of the HTTP API, such as ``unknown_limit_key:global:llm:openai:gpt-4o:rpm``, and a ``message`` that says
what to do. They are the same in process and from a server, and can be pickled.
"""

from __future__ import annotations

from collections.abc import Sequence


class LimiterError(Exception):
    """An answer that is not what was asked for."""

    def __init__(self, code: str, message: str = "", *more: object) -> None:
        super().__init__(code, message, *more)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" if self.message else self.code

    @property
    def _about(self) -> str:
        """The key or field after the first colon of the code."""
        return self.code.partition(":")[2]


class Denied(LimiterError):
    """Not now: a limit has no room, is paused, or is being lowered. Nothing is reserved."""

    def __init__(
        self,
        code: str,
        message: str = "",
        keys: Sequence[str] = (),
        retry_after: float = 0.0,
        waited: float = 0.0,
    ) -> None:
        keys = tuple(keys)
        super().__init__(code, message, keys, retry_after, waited)
        #: The limits without room, in the order of the request. A backend may name only the first.
        self.keys = keys
        #: When to ask again, in seconds.
        self.retry_after = retry_after
        #: How long the request has waited, in seconds.
        self.waited = waited

    @property
    def reason(self) -> str:
        """``no_room``, ``limit_paused``, ``limit_decreasing``, ``too_many_limits`` or ``too_many_waiters``."""
        return self.code.partition(":")[0]

    def __str__(self) -> str:
        about = self.message or f"no room in {', '.join(self.keys)}"
        return f"{about}; ask again in {self.retry_after:.3g} s"


class Unanswered(LimiterError):
    """No answer, so the outcome is unknown. To ask again, repeat the call with the same ``lease_id``."""

    def __init__(self, code: str, message: str = "", retry_after: float = 0.0, lease_id: str | None = None) -> None:
        super().__init__(code, message, retry_after, lease_id)
        #: When to ask again, in seconds; 0 if the server did not say.
        self.retry_after = retry_after
        #: The lease in question.
        self.lease_id = lease_id


class InvalidRequest(LimiterError, ValueError):
    """The request is malformed."""

    @property
    def field(self) -> str:
        """The path of the field, such as ``requirements[0].amount``."""
        return self._about


class _AboutKey(LimiterError):
    @property
    def key(self) -> str:
        """The limit in question."""
        return self._about


class DuplicateKey(_AboutKey, ValueError):
    """A key is listed twice in one request."""


class UnknownLimitKey(_AboutKey):
    """No limit has this key."""


class AmountExceedsCapacity(_AboutKey):
    """The amount is above the limit's whole capacity: waiting cannot help."""


class InvalidActual(_AboutKey):
    """The lease has no rolling or calendar reservation of this key."""


class InvalidAmount(_AboutKey):
    """The lease has no requirement of this key."""


class KindConflict(_AboutKey):
    """The key is of another kind."""


class ForbiddenKey(_AboutKey):
    """The token does not permit this key."""


class LeaseConflict(LimiterError):
    """The lease ID was used before, for other requirements."""


class LeaseEnded(LimiterError):
    """The lease was completed, or has lapsed."""


class RenewSuperseded(LimiterError):
    """The lease was renewed with a greater number."""


class TooManyLimits(LimiterError):
    """The server has its maximum number of limits or templates."""


class LimitsReadOnly(LimiterError):
    """The server cannot write its limits file."""


class NotFound(LimiterError):
    """No such limit, no such open lease, or no such path."""


class Unauthorized(LimiterError):
    """The server wants a valid token."""


class Forbidden(LimiterError):
    """The token does not permit this operation."""


class MethodNotAllowed(LimiterError):
    """The path does not support this method."""


class BodyTooLarge(LimiterError):
    """The body is larger than the server accepts."""


class BackendRefused(LimiterError):
    """The server's backend does not accept the server. Repeating does not help."""


class Closed(LimiterError):
    """The limiter was closed."""


class UnexpectedAnswer(LimiterError):
    """Not an answer of a ratelimiter server."""
