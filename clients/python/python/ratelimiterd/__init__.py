"""Capacity control for LLM calls: a call goes ahead only when all its limits have room.

:class:`AsyncLimiter` and its twin :class:`Limiter` reserve an upper bound of everything that a call may use, atomically, and correct it
when the call ends; in this process, or at a server that many programs share.
"""

from . import _native
from .errors import (
    AmountExceedsCapacity,
    BackendRefused,
    BodyTooLarge,
    Closed,
    Denied,
    DuplicateKey,
    Forbidden,
    ForbiddenKey,
    InvalidActual,
    InvalidAmount,
    InvalidRequest,
    KindConflict,
    LeaseConflict,
    LeaseEnded,
    LimiterError,
    LimitsReadOnly,
    MethodNotAllowed,
    NotFound,
    RenewSuperseded,
    TooManyLimits,
    Unanswered,
    Unauthorized,
    UnexpectedAnswer,
    UnknownLimitKey,
)
from .leases import AsyncLease, Lease
from .limiter import AsyncLimiter, Limiter, Reserving
from .limits import LimitDefinition, LimitState

__version__: str = _native.VERSION

__all__ = [
    "AmountExceedsCapacity",
    "AsyncLease",
    "AsyncLimiter",
    "BackendRefused",
    "BodyTooLarge",
    "Closed",
    "Denied",
    "DuplicateKey",
    "Forbidden",
    "ForbiddenKey",
    "InvalidActual",
    "InvalidAmount",
    "InvalidRequest",
    "KindConflict",
    "Lease",
    "LeaseConflict",
    "LeaseEnded",
    "LimitDefinition",
    "LimitState",
    "Limiter",
    "LimiterError",
    "LimitsReadOnly",
    "MethodNotAllowed",
    "NotFound",
    "RenewSuperseded",
    "Reserving",
    "TooManyLimits",
    "Unanswered",
    "Unauthorized",
    "UnexpectedAnswer",
    "UnknownLimitKey",
]
