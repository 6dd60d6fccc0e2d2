"""The limiter of a server, over HTTP, for threads and for coroutines."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Coroutine, Mapping
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from . import _native
from ._answers import error_from
from ._requests import Allowed, Reserve, listed
from .errors import (
    Forbidden,
    InvalidActual,
    InvalidRequest,
    LimiterError,
    Unanswered,
    Unauthorized,
    UnexpectedAnswer,
)
from .limits import LimitState

#: How long a request without an answer is repeated, in seconds.
REPEAT_SECONDS = 2.0
#: The most requests that wait at the server at a time. Each takes a connection.
WAITING_MAX = 200
#: How long no request waits at a server that refused one, which may be replaced by a newer one.
WAITING_REFUSED_SECONDS = 60.0
#: The limits of one page.
PAGE_SIZE = 1_000
#: The most idle connections that are kept open.
IDLE_CONNECTIONS_MAX = 64
#: How much of an unexpected answer an error shows.
SHOWN_CHARACTERS_MAX = 80

_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=IDLE_CONNECTIONS_MAX)
#: The server did not process the request, or its outcome is unknown; a proxy answers the same way.
_UNAVAILABLE = {408, 425, 429, 502, 503, 504}

T = TypeVar("T")


class _Protocol:
    """What is sent, and what the answers mean."""

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        try:
            base = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise InvalidRequest("invalid_request:url", f"{url!r} is no URL: {error}") from None
        if base.scheme not in ("http", "https") or not base.host:
            raise InvalidRequest("invalid_request:url", f"{url!r} must be like http://ratelimiter:8080")
        self._base = str(base).rstrip("/")
        self._headers = {"content-type": "application/json", "accept": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._timeout = timeout
        self._waiting_refused_until = 0.0
        self._waiting = threading.BoundedSemaphore(WAITING_MAX)
        # Keys of concurrency limits, which have no actuals.
        self._holds: set[str] = set()

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None, wait: float = 0.0) -> dict[str, Any]:
        """The arguments of ``httpx``'s ``request``."""
        request: dict[str, Any] = {
            "method": method,
            "url": self._base + path,
            "headers": self._headers,
            "timeout": httpx.Timeout(self._timeout + wait, pool=None),
        }
        if body is not None:
            request["content"] = json.dumps(body).encode()
        return request

    def _answer(self, response: httpx.Response, lease_id: str | None) -> dict[str, Any]:
        """The answer of a ratelimiter server; raises if it is none."""
        status = response.status_code
        answer = _object_of(response)
        if status in _UNAVAILABLE or (500 <= status < 600 and (answer is None or "error" not in answer)):
            raise self._unavailable(response, answer or {}, lease_id)
        if answer is None:
            shown = response.text[:SHOWN_CHARACTERS_MAX]
            raise UnexpectedAnswer(
                "unexpected_answer",
                f"{self._base} answered {status} with {shown!r}; is this a ratelimiter server?",
            )
        if status in (401, 403) and "error" not in answer:
            unauthorized = Unauthorized if status == 401 else Forbidden
            raise unauthorized(unauthorized.__name__.lower(), f"{self._base} answered {status}")
        return answer

    def _unavailable(self, response: httpx.Response, answer: Mapping[str, Any], lease_id: str | None) -> Unanswered:
        retry_after_ms = answer.get("retry_after_ms") or 0
        header = response.headers.get("retry-after", "")
        # The body has milliseconds and the header seconds.
        retry_after = retry_after_ms / 1000 or (float(header) if header.isdecimal() else 0.0)
        code = answer.get("error") or "backend_error"
        about = answer.get("message") or response.reason_phrase
        message = f"{self._base} is not available: status {response.status_code}: {about}"
        return Unanswered(str(code), message, retry_after, lease_id)

    def _failed(self, error: httpx.HTTPError, lease_id: str | None) -> Unanswered:
        about = str(error) or type(error).__name__
        return Unanswered("backend_error", f"no answer from {self._base}: {about}", 0.0, lease_id)

    def _pause(self, begun: float, count: int, error: Unanswered) -> float | None:
        """How long to pause after so many requests without an answer; ``None`` if that is enough."""
        pause = _native.no_answer_pause(count, error.retry_after, random.random())  # noqa: S311
        return pause if monotonic() - begun + pause < REPEAT_SECONDS else None

    def _may_wait(self, request: Reserve) -> bool:
        """Whether the request may wait at the server; if so, it has a place there. Those beyond ask again and again."""
        may_wait = request.wait > 0 and monotonic() >= self._waiting_refused_until
        return may_wait and self._waiting.acquire(blocking=False)

    def _refuses_waiting(self, error: InvalidRequest) -> bool:
        """Whether the server is of the first edition, which lets no request wait."""
        if error.field not in ("wait_ms", "queue"):
            return False
        self._waiting_refused_until = monotonic() + WAITING_REFUSED_SECONDS
        return True

    def _note_hold(self, error: InvalidActual) -> None:
        if error.key in self._holds:
            raise error
        self._holds.add(error.key)

    def _unused(self, amounts: Mapping[str, int]) -> dict[str, int]:
        """The actuals of a call that was not made."""
        return {key: 0 for key in amounts if key not in self._holds}


def _object_of(response: httpx.Response) -> dict[str, Any] | None:
    try:
        content = response.json()
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _allowed(answer: Mapping[str, Any], lease_id: str) -> Allowed:
    if not answer.get("allowed"):
        raise error_from(answer, lease_id)
    return (
        lease_id,
        answer.get("reserved_at_unix_ms") or 0,
        answer.get("waited_ms"),
        answer.get("shadow_denied_keys") or [],
    )


def _completed(answer: Mapping[str, Any], lease_id: str) -> None:
    if not answer.get("ok"):
        raise error_from(answer, lease_id)


def _renewed(answer: Mapping[str, Any], lease_id: str) -> int:
    if not answer.get("renewed"):
        raise error_from(answer, lease_id)
    return answer.get("lapses_at_unix_ms") or 0


def _changed(answer: Mapping[str, Any]) -> None:
    if not answer.get("ok"):
        raise error_from(answer)


def _page(answer: Mapping[str, Any]) -> list[LimitState]:
    if "limits" not in answer:
        raise error_from(answer)
    limits: list[LimitState] = answer["limits"]
    return limits


def _complete_body(lease_id: str, actuals: Mapping[str, int] | None, job_id: str | None) -> dict[str, Any]:
    body = {"lease_id": lease_id, "actuals": listed(actuals or {}, "actual_amount")}
    return body if job_id is None else {**body, "job_id": job_id}


def _renew_body(lease_id: str, number: int, amounts: Mapping[str, int]) -> dict[str, Any]:
    return {"lease_id": lease_id, "number": number, "amounts": listed(amounts)}


def _page_path(prefix: str, after: str | None) -> str:
    path = f"/v1/admin/limits?limit={PAGE_SIZE}&prefix={quote(prefix, safe='')}"
    return path if after is None else f"{path}&after={quote(after, safe='')}"


def _limit_path(key: str) -> str:
    return f"/v1/admin/limits/{quote(key, safe='')}"


class Http(_Protocol):
    """For threads."""

    def __init__(self, url: str, token: str | None, timeout: float, client: httpx.Client | None) -> None:
        super().__init__(url, token, timeout)
        self._owns_client = client is None
        self._client = client or httpx.Client(limits=_LIMITS)

    def reserve(self, request: Reserve) -> Allowed:
        lease_id = request.lease_id or _native.new_lease_id()
        try:
            if self._may_wait(request):
                try:
                    return self._reserve(request, lease_id, may_wait=True)
                except InvalidRequest as error:
                    if not self._refuses_waiting(error):
                        raise
                finally:
                    self._waiting.release()
            return self._reserve(request, lease_id, may_wait=False)
        except Exception:
            raise
        except BaseException:
            # A signal: nobody knows whether it was allowed.
            self._give_back(lease_id, request.amounts)
            raise

    def _reserve(self, request: Reserve, lease_id: str, *, may_wait: bool) -> Allowed:
        body = request.body(lease_id, may_wait=may_wait)
        sent = self._request("POST", "/v1/reserve", body, request.wait if may_wait else 0.0)
        return _allowed(self._send(sent, lease_id), lease_id)

    def _give_back(self, lease_id: str, amounts: Mapping[str, int]) -> None:
        try:
            while True:
                try:
                    self.complete(lease_id, self._unused(amounts), None)
                    return
                except InvalidActual as error:
                    self._note_hold(error)
        except LimiterError:
            # It lapses by itself.
            pass

    def complete(self, lease_id: str, actuals: dict[str, int] | None, job_id: str | None) -> None:
        body = _complete_body(lease_id, actuals, job_id)
        _completed(self._send(self._request("POST", "/v1/complete", body), lease_id), lease_id)

    def renew(self, lease_id: str, number: int, amounts: dict[str, int]) -> int:
        body = _renew_body(lease_id, number, amounts)
        return _renewed(self._send(self._request("POST", "/v1/renew", body), lease_id), lease_id)

    def define(self, definition: Mapping[str, Any]) -> None:
        _changed(self._send_once(self._request("PUT", "/v1/admin/limits", definition)))

    def delete(self, key: str) -> None:
        _changed(self._send_once(self._request("DELETE", _limit_path(key), None)))

    def limits(self, prefix: str) -> list[LimitState]:
        states: list[LimitState] = []
        after = None
        while True:
            page = _page(self._send_once(self._request("GET", _page_path(prefix, after), None)))
            states += page
            if len(page) < PAGE_SIZE:
                return states
            after = page[-1]["key"]

    def close(self) -> None:
        if self._owns_client:
            self._client.close()

    def _send(self, request: Mapping[str, Any], lease_id: str) -> dict[str, Any]:
        """Repeats a request without an answer for a while: it is idempotent."""
        begun, count = monotonic(), 1
        while True:
            try:
                return self._send_once(request, lease_id)
            except Unanswered as error:
                pause = self._pause(begun, count, error)
                if pause is None:
                    raise
                time.sleep(pause)
                count += 1

    def _send_once(self, request: Mapping[str, Any], lease_id: str | None = None) -> dict[str, Any]:
        try:
            response = self._client.request(**request)
        except httpx.HTTPError as error:
            raise self._failed(error, lease_id) from error
        return self._answer(response, lease_id)


class AsyncHttp(_Protocol):
    """For coroutines."""

    def __init__(self, url: str, token: str | None, timeout: float, client: httpx.AsyncClient | None) -> None:
        super().__init__(url, token, timeout)
        self._owns_client = client is None
        self._client = client or httpx.AsyncClient(limits=_LIMITS)
        # What must not end with the task that began it.
        self._ending: set[asyncio.Task[None]] = set()

    async def reserve(self, request: Reserve) -> Allowed:
        lease_id = request.lease_id or _native.new_lease_id()
        try:
            if self._may_wait(request):
                try:
                    return await self._reserve(request, lease_id, may_wait=True)
                except InvalidRequest as error:
                    if not self._refuses_waiting(error):
                        raise
                finally:
                    self._waiting.release()
            return await self._reserve(request, lease_id, may_wait=False)
        except Exception:
            raise
        except BaseException:
            # Cancelled: nobody knows whether it was allowed.
            self._in_background(self._give_back(lease_id, request.amounts))
            raise

    async def _reserve(self, request: Reserve, lease_id: str, *, may_wait: bool) -> Allowed:
        body = request.body(lease_id, may_wait=may_wait)
        sent = self._request("POST", "/v1/reserve", body, request.wait if may_wait else 0.0)
        return _allowed(await self._send(sent, lease_id), lease_id)

    async def _give_back(self, lease_id: str, amounts: Mapping[str, int]) -> None:
        try:
            while True:
                try:
                    await self._complete(lease_id, self._unused(amounts), None)
                    return
                except InvalidActual as error:
                    self._note_hold(error)
        except LimiterError:
            # It lapses by itself.
            pass

    async def complete(self, lease_id: str, actuals: dict[str, int] | None, job_id: str | None) -> None:
        # Whoever is cancelled meanwhile leaves a complete that goes on.
        await asyncio.shield(self._in_background(self._complete(lease_id, actuals, job_id)))

    async def _complete(self, lease_id: str, actuals: Mapping[str, int] | None, job_id: str | None) -> None:
        body = _complete_body(lease_id, actuals, job_id)
        sent = self._request("POST", "/v1/complete", body)
        _completed(await self._send(sent, lease_id), lease_id)

    async def renew(self, lease_id: str, number: int, amounts: dict[str, int]) -> int:
        sent = self._request("POST", "/v1/renew", _renew_body(lease_id, number, amounts))
        return _renewed(await self._send(sent, lease_id), lease_id)

    async def define(self, definition: Mapping[str, Any]) -> None:
        _changed(await self._send_once(self._request("PUT", "/v1/admin/limits", definition)))

    async def delete(self, key: str) -> None:
        _changed(await self._send_once(self._request("DELETE", _limit_path(key), None)))

    async def limits(self, prefix: str) -> list[LimitState]:
        states: list[LimitState] = []
        after = None
        while True:
            sent = self._request("GET", _page_path(prefix, after), None)
            page = _page(await self._send_once(sent))
            states += page
            if len(page) < PAGE_SIZE:
                return states
            after = page[-1]["key"]

    async def aclose(self) -> None:
        """Waits for what goes on in the background."""
        while self._ending:
            await asyncio.wait(self._ending)
        if self._owns_client:
            await self._client.aclose()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def _send(self, request: Mapping[str, Any], lease_id: str) -> dict[str, Any]:
        """Repeats a request without an answer for a while: it is idempotent."""
        begun, count = monotonic(), 1
        while True:
            try:
                return await self._send_once(request, lease_id)
            except Unanswered as error:
                pause = self._pause(begun, count, error)
                if pause is None:
                    raise
                await asyncio.sleep(pause)
                count += 1

    async def _send_once(self, request: Mapping[str, Any], lease_id: str | None = None) -> dict[str, Any]:
        try:
            response = await self._client.request(**request)
        except httpx.HTTPError as error:
            raise self._failed(error, lease_id) from error
        return self._answer(response, lease_id)
