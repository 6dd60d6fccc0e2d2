"""The memory backend in this process, for threads and for coroutines."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import _native
from ._requests import Allowed, Reserve, whole_ms
from .errors import InvalidRequest
from .limits import LimitDefinition, LimitState

os.register_at_fork(after_in_child=_native.note_fork)

#: The format of a limits file in which a list may have everything.
FILE_VERSION = 2


class _Base:
    def __init__(self, limits: str | os.PathLike[str] | Sequence[LimitDefinition] | Mapping[str, Any]) -> None:
        if isinstance(limits, (str, os.PathLike)):
            self._native = _of_file(Path(limits))
            return
        document = limits if isinstance(limits, Mapping) else {"version": FILE_VERSION, "limits": list(limits)}
        self._native = _native.InProcess(json.dumps(document).encode())

    def _begin(self, request: Reserve) -> Allowed | _native.Pending:
        wait = request.wait()
        wait_ms = whole_ms(wait) if wait else None
        return self._native.reserve(request.amounts, request.lease_id, wait_ms, request.queue, request.job_id)

    def _limits(self, prefix: str, template: str | None) -> list[LimitState]:
        states: list[LimitState] = json.loads(self._native.limits(prefix, template))["limits"]
        return states

    def __repr__(self) -> str:
        return "in process"


class InProcess(_Base):
    """For threads."""

    def reserve(self, request: Reserve) -> Allowed:
        answer = self._begin(request)
        return _waited(answer) if isinstance(answer, _native.Pending) else answer

    def complete(self, lease_id: str, actuals: dict[str, int] | None, job_id: str | None) -> None:
        self._native.complete(lease_id, actuals, job_id)

    def renew(self, lease_id: str, number: int, amounts: dict[str, int]) -> int:
        return self._native.renew(lease_id, number, amounts)

    def define(self, definition: Mapping[str, Any]) -> None:
        self._native.define(json.dumps(definition).encode())

    def delete(self, key: str) -> None:
        self._native.delete(key)

    def limits(self, prefix: str, template: str | None) -> list[LimitState]:
        return self._limits(prefix, template)

    def close(self) -> None:
        pass


class AsyncInProcess(_Base):
    """For coroutines. Nothing but a reserve waits."""

    async def reserve(self, request: Reserve) -> Allowed:
        answer = self._begin(request)
        return await _awaited(answer) if isinstance(answer, _native.Pending) else answer

    async def complete(self, lease_id: str, actuals: dict[str, int] | None, job_id: str | None) -> None:
        self._native.complete(lease_id, actuals, job_id)

    async def renew(self, lease_id: str, number: int, amounts: dict[str, int]) -> int:
        return self._native.renew(lease_id, number, amounts)

    async def define(self, definition: Mapping[str, Any]) -> None:
        self._native.define(json.dumps(definition).encode())

    async def delete(self, key: str) -> None:
        self._native.delete(key)

    async def limits(self, prefix: str, template: str | None) -> list[LimitState]:
        return self._limits(prefix, template)

    async def aclose(self) -> None:
        pass


def _of_file(path: Path) -> _native.InProcess:
    try:
        return _native.InProcess(path.read_bytes())
    except InvalidRequest as error:
        raise InvalidRequest(error.code, f"{path}: {error.message}") from None


def _waited(pending: _native.Pending) -> Allowed:
    woken = threading.Event()
    try:
        while (answer := pending.poll(woken.set)) is None:
            woken.wait()
            woken.clear()
        return answer
    except BaseException:
        # A signal, such as a keyboard interrupt.
        pending.cancel()
        raise


async def _awaited(pending: _native.Pending) -> Allowed:
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()

    def wake() -> None:
        # The loop may be closed by now.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(woken.set)

    try:
        while (answer := pending.poll(wake)) is None:
            await woken.wait()
            woken.clear()
        return answer
    except BaseException:
        pending.cancel()
        raise
