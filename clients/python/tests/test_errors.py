"""PY-02: every error of the server is an exception class with its fields."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest
import ratelimiterd
from conftest import ROOT
from ratelimiterd import Denied, LimiterError, Unanswered
from ratelimiterd._answers import error_from

KEY = "global:llm:openai:gpt-4o:rpm"


def codes() -> list[str]:
    """The codes of the HTTP API, as its reference lists them."""
    reference = (ROOT / "docs" / "reference" / "http-api.md").read_text()
    table = reference.partition("| code |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([a-z_]+(?::<[a-z]+>)?)` \|", table, re.MULTILINE)


def test_py_02_every_code_of_the_reference_has_a_class() -> None:
    assert len(codes()) >= 20, codes()
    for code in codes():
        code = code.replace("<key>", KEY).replace("<field>", "requirements[0].amount").replace("<template>", "a:*")
        error = error_from({"error": code, "message": "why", "retry_after_ms": 120, "denied_keys": [KEY]})
        assert type(error) is not LimiterError, code
        assert (error.code, error.message) == (code, "why")


@pytest.mark.parametrize(
    ("answer", "kind", "fields"),
    [
        ({"retry_after_ms": 120, "denied_keys": [KEY]}, Denied, {"keys": (KEY,), "retry_after": 0.12, "reason": "no_room", "waited": 0}),
        (
            {"retry_after_ms": 1000, "denied_keys": [KEY], "waited_ms": 1500, "error": "too_many_waiters"},
            Denied,
            {"keys": (KEY,), "reason": "too_many_waiters", "waited": 1.5},
        ),
        (
            {"retry_after_ms": 10_000, "error": f"limit_decreasing:{KEY}"},
            Denied,
            {"keys": (KEY,), "reason": "limit_decreasing", "retry_after": 10},
        ),
        ({"retry_after_ms": 10, "error": "too_many_limits:a:*"}, Denied, {"keys": ("a:*",), "reason": "too_many_limits"}),
        ({"error": "too_many_limits"}, ratelimiterd.TooManyLimits, {}),
        ({"error": "backend_error", "retry_after_ms": 500}, Unanswered, {"retry_after": 0.5, "lease_id": "A"}),
        ({"error": "invalid_request:limits[3].capacity"}, ratelimiterd.InvalidRequest, {"field": "limits[3].capacity"}),
        ({"error": f"unknown_limit_key:{KEY}"}, ratelimiterd.UnknownLimitKey, {"key": KEY}),
    ],
)
def test_py_02_the_fields_are_those_of_the_answer(answer: dict[str, Any], kind: type[LimiterError], fields: dict[str, Any]) -> None:
    error = error_from(answer, "A")
    assert type(error) is kind
    assert {name: getattr(error, name) for name in fields} == fields


def test_py_02_exceptions_can_be_pickled() -> None:
    kinds = [kind for kind in vars(ratelimiterd).values() if isinstance(kind, type) and issubclass(kind, LimiterError)]
    assert len(kinds) >= 20
    for error in [
        *(kind("code:about", "why") for kind in kinds),
        Denied("no_room", "", (KEY,), 0.12, 3.0),
        Unanswered("backend_error", "why", 0.5, "A"),
    ]:
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert vars(copy) == vars(error)
        assert str(copy) == str(error)
