"""Exceptions from the answers of the HTTP API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from . import errors

_CLASSES: dict[str, type[errors.LimiterError]] = {
    "invalid_request": errors.InvalidRequest,
    "duplicate_key": errors.DuplicateKey,
    "unknown_limit_key": errors.UnknownLimitKey,
    "amount_exceeds_capacity": errors.AmountExceedsCapacity,
    "lease_conflict": errors.LeaseConflict,
    "lease_ended": errors.LeaseEnded,
    "invalid_actual": errors.InvalidActual,
    "renew_superseded": errors.RenewSuperseded,
    "invalid_amount": errors.InvalidAmount,
    "kind_conflict": errors.KindConflict,
    "too_many_limits": errors.TooManyLimits,
    "limits_read_only": errors.LimitsReadOnly,
    "not_found": errors.NotFound,
    "unauthorized": errors.Unauthorized,
    "forbidden": errors.Forbidden,
    "forbidden_key": errors.ForbiddenKey,
    "method_not_allowed": errors.MethodNotAllowed,
    "body_too_large": errors.BodyTooLarge,
    "backend_refused": errors.BackendRefused,
}
_DENIALS = {"limit_paused", "limit_decreasing", "too_many_waiters"}
_NO_ANSWERS = {"backend_error", "request_timeout"}


def error_from_json(text: str) -> errors.LimiterError:
    """The exception of an answer that does not allow what was asked."""
    return error_from(json.loads(text))


def error_from(answer: Mapping[str, Any], lease_id: str | None = None) -> errors.LimiterError:
    """As :func:`error_from_json`."""
    code, message, keys = answer.get("error") or "", answer.get("message") or "", answer.get("denied_keys") or []
    retry_after_ms, waited_ms = answer.get("retry_after_ms") or 0, answer.get("waited_ms") or 0
    is_text = isinstance(code, str) and isinstance(message, str) and isinstance(keys, list) and all(isinstance(key, str) for key in keys)
    if not is_text or not isinstance(retry_after_ms, (int, float)) or not isinstance(waited_ms, (int, float)):
        return errors.UnexpectedAnswer("unexpected_answer", "not an answer of a ratelimiter server")
    retry_after = retry_after_ms / 1000
    word, _, about = code.partition(":")
    if word in _NO_ANSWERS:
        return errors.Unanswered(code, message, retry_after, lease_id)
    # A limit of a template may be one too many for now; a definition is one too many for good.
    if not word or word in _DENIALS or (word == "too_many_limits" and about):
        if not word and not keys and not retry_after:
            return errors.UnexpectedAnswer("unexpected_answer", "no answer to this request; is this a ratelimiter server?")
        return errors.Denied(code or "no_room", message, keys or [about][: bool(about)], retry_after, waited_ms / 1000)
    return _CLASSES.get(word, errors.LimiterError)(code, message)
