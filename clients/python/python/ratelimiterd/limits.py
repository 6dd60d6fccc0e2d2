"""Limits as the limits file and the HTTP API write them."""

from __future__ import annotations

from typing import Literal, TypedDict


class _Definition(TypedDict):
    key: str
    kind: Literal["rolling", "concurrency", "calendar"]
    capacity: int


class LimitDefinition(_Definition, total=False):
    """A limit. ``docs/reference/limits-file.md`` says what each field means."""

    window_seconds: int
    timeout_seconds: int
    period: Literal["hour", "day", "week", "month"]
    time_zone: str
    resets_at: str
    weekday: str
    day: int
    mode: Literal["enforce", "shadow"]
    overage: Literal["debt", "deny"]
    unit: str
    description: str


class _State(LimitDefinition):
    status: Literal["active", "paused", "decreasing"]
    pending_decrease_to: int | None
    used: int
    available: int
    debt: int
    uncovered: int


class LimitState(_State, total=False):
    """A limit with its current use. ``docs/reference/http-api.md`` says what each field means."""

    resets_at_unix_ms: int
