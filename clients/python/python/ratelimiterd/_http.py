"""The limiter of a server, over HTTP, for threads and for coroutines."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any
from urllib.parse import quote

import httpx

from . import _native
from ._answers import error_from
from ._requests import Allowed, Reserve, listed, no_answer_pause
from .errors import (
    Denied,
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
#: The most requests that wait at the server at a time, and the most others; those beyond wait here, in order. Each takes a connection, and
#: httpx takes longer for each request the more connections there are.
WAITING_MAX = 32
REQUESTS_MAX = 16
#: How long no request waits at a server that refused one, which may be replaced by a newer one.
WAITING_REFUSED_SECONDS = 60.0
#: The limits of one page.
PAGE_SIZE = 1_000
#: How much of an unexpected answer an error shows.
SHOWN_CHARACTERS_MAX = 80

#: The server did not process the request, or its outcome is unknown; a proxy answers the same way.
_UNAVAILABLE = {408, 425, 429, 502, 503, 504}
# The bounds above hold before a connection is asked for.
_UNBOUNDED = httpx.Limits(max_connections=None)


class _Protocol:
    """What is sent, and what the answers mean."""

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        self._base = _base(url)
        self._headers = {"content-type": "application/json", "accept": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {_checked_token(token)}"
        self._timeout = float(timeout)
        self._process = os.getpid()
        self._waiting_refused_until = 0.0
        # Keys of concurrency limits, which have no actuals.
        self._holds: set[str] = set()
        # Requests under way, after which a closed limiter has no connections.
        self._under_way = 0
        self._is_closed = False

    def __repr__(self) -> str:
        return f"of {self._base}"

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError(
                "this limiter was made before the process was forked, and its connections belong to the other process; "
                "make it after the fork"
            )

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
            raise UnexpectedAnswer("unexpected_answer", f"{self._base} answered {status} with {shown!r}; is this a ratelimiter server?")
        if status in (401, 403) and "error" not in answer:
            unauthorized = Unauthorized if status == 401 else Forbidden
            raise unauthorized(unauthorized.__name__.lower(), f"{self._base} answered {status}")
        return answer

    def _unavailable(self, response: httpx.Response, answer: Mapping[str, Any], lease_id: str | None) -> Unanswered:
        known = error_from({**answer, "error": "backend_error"}, lease_id)
        hint = known.retry_after if isinstance(known, Unanswered) else 0.0
        # The body has milliseconds and the header seconds.
        header = response.headers.get("retry-after", "")
        retry_after = hint or (float(header) if header.isdecimal() else 0.0)
        about = known.message if isinstance(known, Unanswered) and known.message else response.reason_phrase
        message = f"{self._base} is not available: status {response.status_code}: {about}"
        return Unanswered("backend_error", message, retry_after, lease_id)

    def _failed(self, error: httpx.HTTPError, lease_id: str | None) -> Unanswered:
        about = str(error) or type(error).__name__
        return Unanswered("backend_error", f"no answer from {self._base}: {about}", 0.0, lease_id)

    def _pause(self, begun: float, count: int, error: Unanswered) -> float | None:
        """How long to pause after so many requests without an answer; ``None`` if that is enough."""
        pause = no_answer_pause(count, error)
        return pause if monotonic() - begun + pause < REPEAT_SECONDS else None

    def _may_wait(self) -> bool:
        return monotonic() >= self._waiting_refused_until

    def _note_refused_wait(self, error: InvalidRequest) -> None:
        """The server may be of the first edition, which lets no request wait."""
        if error.field not in ("wait_ms", "queue"):
            raise error
        self._waiting_refused_until = monotonic() + WAITING_REFUSED_SECONDS

    def _note_hold(self, error: InvalidActual, unused: dict[str, int]) -> None:
        if unused.pop(error.key, None) is None:
            raise error
        self._holds.add(error.key)

    def _unused(self, amounts: Mapping[str, int]) -> dict[str, int]:
        """The actuals of a call that was not made."""
        return {key: 0 for key in amounts if key not in self._holds}


def _base(url: str) -> str:
    try:
        base = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise InvalidRequest("invalid_request:url", f"`url` is no URL: {error}") from None
    if base.scheme not in ("http", "https") or not base.host:
        raise InvalidRequest("invalid_request:url", "`url` must be like http://ratelimiter:8080")
    if base.userinfo or base.query or base.fragment:
        raise InvalidRequest("invalid_request:url", "`url` has neither a user nor a query; credentials are given as `token`")
    if base.path.rstrip("/").endswith("/v1"):
        raise InvalidRequest("invalid_request:url", "`url` is that of the server, without /v1")
    return str(base).rstrip("/")


def _checked_token(token: str) -> str:
    if token and token.isascii() and token.isprintable() and " " not in token:
        return token
    raise InvalidRequest("invalid_request:token", "a token has 1 or more visible ASCII characters, without a line's end")


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
    body = {"lease_id": lease_id, "actuals": listed(actuals or {}, "actuals", "actual_amount")}
    return body if job_id is None else {**body, "job_id": job_id}


def _renew_body(lease_id: str, number: int, amounts: Mapping[str, int]) -> dict[str, Any]:
    return {"lease_id": lease_id, "number": number, "amounts": listed(amounts, "amounts", "amount")}


def _page_path(prefix: str, template: str | None, after: str | None) -> str:
    path = f"/v1/admin/limits?limit={PAGE_SIZE}&prefix={quote(prefix, safe='')}"
    for name, value in (("template", template), ("after", after)):
        if value is not None:
            path += f"&{name}={quote(value, safe='')}"
    return path


def _limit_path(key: str) -> str:
    return f"/v1/admin/limits/{quote(key, safe='')}"


class _Clients:
    """The connections for threads."""

    def __init__(self, given: httpx.Client | None) -> None:
        self._given = given
        self.quick = given or httpx.Client(limits=_UNBOUNDED)
        # Of its own, since a pool of connections takes longer the more of them are busy.
        self.waiting = given or httpx.Client(limits=_UNBOUNDED)

    def close(self) -> None:
        if self._given is None:
            self.quick.close()
            self.waiting.close()


class Http(_Protocol):
    """For threads."""

    def __init__(self, url: str, token: str | None, timeout: float, client: httpx.Client | None) -> None:
        super().__init__(url, token, timeout)
        self._given_client = client
        self._clients: _Clients | None = None
        self._lock = threading.Lock()
        self._requests = threading.BoundedSemaphore(REQUESTS_MAX)
        self._places = threading.BoundedSemaphore(WAITING_MAX)

    def reserve(self, request: Reserve) -> Allowed:
        lease_id = request.lease_id or _native.new_lease_id()
        try:
            return self._reserve(request, lease_id)
        except Exception:
            raise
        except BaseException:
            # A signal: nobody knows whether it was allowed.
            self._give_back(lease_id, request)
            raise

    def _reserve(self, request: Reserve, lease_id: str) -> Allowed:
        wait = request.wait()
        if wait and self._may_wait() and self._places.acquire(timeout=wait):
            try:
                return self._ask(request, lease_id, request.wait())
            except InvalidRequest as error:
                self._note_refused_wait(error)
            finally:
                self._places.release()
        return self._ask_at_once(request, lease_id)

    def _ask_at_once(self, request: Reserve, lease_id: str) -> Allowed:
        with self._requests:
            return self._ask(request, lease_id, 0.0)

    def _ask(self, request: Reserve, lease_id: str, wait: float) -> Allowed:
        sent = self._request("POST", "/v1/reserve", request.body(lease_id, wait), wait)
        return _allowed(self._send(sent, lease_id, waits=wait > 0), lease_id)

    def _give_back(self, lease_id: str, request: Reserve) -> None:
        """Returns what a lease may have got. What is still under way would be admitted after a complete, so it is decided before."""
        try:
            with suppress(Denied):
                self._ask_at_once(request, lease_id)
            unused = self._unused(request.amounts)
            while True:
                try:
                    return self.complete(lease_id, unused, None)
                except InvalidActual as error:
                    self._note_hold(error, unused)
        except LimiterError:
            # It lapses by itself.
            return None

    def complete(self, lease_id: str, actuals: dict[str, int] | None, job_id: str | None) -> None:
        sent = self._request("POST", "/v1/complete", _complete_body(lease_id, actuals, job_id))
        with self._requests:
            _completed(self._send(sent, lease_id), lease_id)

    def renew(self, lease_id: str, number: int, amounts: dict[str, int]) -> int:
        sent = self._request("POST", "/v1/renew", _renew_body(lease_id, number, amounts))
        with self._requests:
            return _renewed(self._send(sent, lease_id), lease_id)

    def define(self, definition: Mapping[str, Any]) -> None:
        _changed(self._send_once(self._request("PUT", "/v1/admin/limits", definition)))

    def delete(self, key: str) -> None:
        _changed(self._send_once(self._request("DELETE", _limit_path(key), None)))

    def limits(self, prefix: str, template: str | None) -> list[LimitState]:
        states: list[LimitState] = []
        after = None
        while True:
            sent = self._request("GET", _page_path(prefix, template, after), None)
            page = _page(self._send_once(sent))
            states += page
            if len(page) < PAGE_SIZE:
                return states
            after = page[-1]["key"]

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            unused = self._take_unused()
        if unused is not None:
            unused.close()

    def _take_unused(self) -> _Clients | None:
        """The connections, if nothing needs them any more."""
        if not self._is_closed or self._under_way:
            return None
        clients, self._clients = self._clients, None
        return clients

    def _send(self, request: Mapping[str, Any], lease_id: str, *, waits: bool = False) -> dict[str, Any]:
        """Repeats a request without an answer for a while: it is idempotent."""
        begun, count = monotonic(), 1
        while True:
            try:
                return self._send_once(request, lease_id, waits=waits)
            except Unanswered as error:
                pause = self._pause(begun, count, error)
                if pause is None:
                    raise
                time.sleep(pause)
                count += 1

    def _send_once(self, request: Mapping[str, Any], lease_id: str | None = None, *, waits: bool = False) -> dict[str, Any]:
        self._check_process()
        with self._lock:
            self._under_way += 1
            self._clients = clients = self._clients or _Clients(self._given_client)
        try:
            response = (clients.waiting if waits else clients.quick).request(**request)
        except httpx.HTTPError as error:
            raise self._failed(error, lease_id) from error
        finally:
            with self._lock:
                self._under_way -= 1
                unused = self._take_unused()
            if unused is not None:
                unused.close()
        return self._answer(response, lease_id)


class _Places:
    """A bounded number of places, given out in the order of arrival.

    Unlike ``asyncio.wait_for`` around a semaphore, it never takes a cancellation for an answer in older Pythons.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[bool]] = deque()

    async def take(self, seconds: float) -> bool:
        """Takes a place, unless there is none within this time."""
        if self._free:
            self._free -= 1
            return True
        loop = asyncio.get_running_loop()
        given = loop.create_future()
        self._waiting.append(given)
        timer = loop.call_later(seconds, self._give_up, given)
        try:
            is_given: bool = await given
        except asyncio.CancelledError:
            if given.cancelled():
                self._forget(given)
            elif given.result():
                self.give_back()
            raise
        finally:
            timer.cancel()
        return is_given

    def give_back(self) -> None:
        """Gives a place to who waits longest."""
        while self._waiting:
            given = self._waiting.popleft()
            if not given.done():
                given.set_result(True)
                return
        self._free += 1

    def _give_up(self, given: asyncio.Future[bool]) -> None:
        if not given.done():
            self._forget(given)
            given.set_result(False)

    def _forget(self, given: asyncio.Future[bool]) -> None:
        with suppress(ValueError):
            self._waiting.remove(given)


class _AsyncClients:
    """The connections of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, given: httpx.AsyncClient | None) -> None:
        self.loop = loop
        self._given = given
        self.quick = given or httpx.AsyncClient(limits=_UNBOUNDED)
        # As those for threads.
        self.waiting = given or httpx.AsyncClient(limits=_UNBOUNDED)
        self.requests = asyncio.Semaphore(REQUESTS_MAX)
        self.places = _Places(WAITING_MAX)

    async def aclose(self) -> None:
        if self._given is None:
            await self.quick.aclose()
            await self.waiting.aclose()


class AsyncHttp(_Protocol):
    """For coroutines."""

    def __init__(self, url: str, token: str | None, timeout: float, client: httpx.AsyncClient | None) -> None:
        super().__init__(url, token, timeout)
        self._given_client = client
        self._current: _AsyncClients | None = None

    def _clients(self) -> _AsyncClients:
        loop = asyncio.get_running_loop()
        current = self._current
        if current is not None and current.loop is loop:
            return current
        if current is not None and not current.loop.is_closed():
            raise RuntimeError("this limiter is in use in another event loop; connect one in each")
        self._current, self._under_way = _AsyncClients(loop, self._given_client), 0
        return self._current

    async def reserve(self, request: Reserve) -> Allowed:
        lease_id = request.lease_id or _native.new_lease_id()
        try:
            return await self._reserve(request, lease_id)
        except (asyncio.CancelledError, KeyboardInterrupt):
            # Nobody knows whether it was allowed.
            await self._to_the_end(lambda: self._give_back(lease_id, request))
            raise

    async def _reserve(self, request: Reserve, lease_id: str) -> Allowed:
        clients, wait = self._clients(), request.wait()
        if wait and self._may_wait() and await clients.places.take(wait):
            try:
                return await self._ask(request, lease_id, request.wait())
            except InvalidRequest as error:
                self._note_refused_wait(error)
            finally:
                clients.places.give_back()
        return await self._ask_at_once(request, lease_id)

    async def _ask_at_once(self, request: Reserve, lease_id: str) -> Allowed:
        async with self._clients().requests:
            return await self._ask(request, lease_id, 0.0)

    async def _ask(self, request: Reserve, lease_id: str, wait: float) -> Allowed:
        sent = self._request("POST", "/v1/reserve", request.body(lease_id, wait), wait)
        return _allowed(await self._send(sent, lease_id, waits=wait > 0), lease_id)

    async def _give_back(self, lease_id: str, request: Reserve) -> None:
        """As :meth:`Http._give_back`."""
        try:
            with suppress(Denied):
                await self._ask_at_once(request, lease_id)
            unused = self._unused(request.amounts)
            while True:
                try:
                    return await self._complete(lease_id, unused, None)
                except InvalidActual as error:
                    self._note_hold(error, unused)
        except LimiterError:
            # It lapses by itself.
            return None

    async def complete(self, lease_id: str, actuals: dict[str, int] | None, job_id: str | None) -> None:
        await self._to_the_end(lambda: self._complete(lease_id, actuals, job_id))

    async def _complete(self, lease_id: str, actuals: Mapping[str, int] | None, job_id: str | None) -> None:
        sent = self._request("POST", "/v1/complete", _complete_body(lease_id, actuals, job_id))
        async with self._clients().requests:
            _completed(await self._send(sent, lease_id), lease_id)

    async def renew(self, lease_id: str, number: int, amounts: dict[str, int]) -> int:
        sent = self._request("POST", "/v1/renew", _renew_body(lease_id, number, amounts))
        async with self._clients().requests:
            return _renewed(await self._send(sent, lease_id), lease_id)

    async def define(self, definition: Mapping[str, Any]) -> None:
        _changed(await self._send_once(self._request("PUT", "/v1/admin/limits", definition)))

    async def delete(self, key: str) -> None:
        _changed(await self._send_once(self._request("DELETE", _limit_path(key), None)))

    async def limits(self, prefix: str, template: str | None) -> list[LimitState]:
        states: list[LimitState] = []
        after = None
        while True:
            sent = self._request("GET", _page_path(prefix, template, after), None)
            page = _page(await self._send_once(sent))
            states += page
            if len(page) < PAGE_SIZE:
                return states
            after = page[-1]["key"]

    async def aclose(self) -> None:
        self._is_closed = True
        await self._close_if_unused()

    async def _close_if_unused(self) -> None:
        if self._is_closed and not self._under_way and self._current is not None:
            clients, self._current = self._current, None
            await clients.aclose()

    async def _to_the_end(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Does idempotent work. Whoever is cancelled meanwhile ends when it is done."""
        task, cancelled = asyncio.ensure_future(work()), None
        while True:
            try:
                await asyncio.shield(task)
                break
            except asyncio.CancelledError as error:
                cancelled = error
                if task.cancelled():
                    # As all tasks are when `asyncio.run` ends, some before they began.
                    task = asyncio.ensure_future(work())
            except LimiterError:
                if cancelled is None:
                    raise
                break
        if cancelled is not None:
            raise cancelled

    async def _send(self, request: Mapping[str, Any], lease_id: str, *, waits: bool = False) -> dict[str, Any]:
        """Repeats a request without an answer for a while: it is idempotent."""
        begun, count = monotonic(), 1
        while True:
            try:
                return await self._send_once(request, lease_id, waits=waits)
            except Unanswered as error:
                pause = self._pause(begun, count, error)
                if pause is None:
                    raise
                await asyncio.sleep(pause)
                count += 1

    async def _send_once(self, request: Mapping[str, Any], lease_id: str | None = None, *, waits: bool = False) -> dict[str, Any]:
        self._check_process()
        clients = self._clients()
        self._under_way += 1
        try:
            response = await (clients.waiting if waits else clients.quick).request(**request)
        except httpx.HTTPError as error:
            raise self._failed(error, lease_id) from error
        finally:
            self._under_way -= 1
            await self._close_if_unused()
        return self._answer(response, lease_id)
