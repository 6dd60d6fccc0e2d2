"""Runs the checks of a script, and prints what their calls used."""

import asyncio
import inspect
import json

_checks = []
_used = {}


def check(function):
    """Adds a check, which fails by raising."""
    _checks.append(function)
    return function


def equal(actual, expected):
    assert actual == expected, f"{actual!r} is not {expected!r}"


def raised(kind, call):
    """The error of a call that must fail."""
    try:
        answer = call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}, but {answer!r}")


def used(model, input_tokens, output_tokens):
    """A call was answered to the end."""
    of = _of(model)
    of["requests"] += 1
    of["input"] += input_tokens
    of["output"] += output_tokens


def cut(model):
    """A call was broken off."""
    _of(model)["cut"] += 1


def refused(model):
    """A call was refused for lack of room."""
    _of(model)["refused"] += 1


def _of(model):
    return _used.setdefault(model, {"requests": 0, "input": 0, "output": 0, "cut": 0, "refused": 0})


def run():
    for function in _checks:
        name = function.__name__
        try:
            if inspect.iscoroutinefunction(function):
                asyncio.run(function())
            else:
                function()
        except BaseException:
            print(f"failed {name}", flush=True)
            raise
        print(f"ok {name}", flush=True)
    print(f"used {json.dumps(_used)}", flush=True)
