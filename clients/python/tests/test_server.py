"""PY-01, PY-02: what only a server can do, or fail to do."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from conftest import Server, concurrency, rolling, until
from ratelimiterd import (
    AsyncLimiter,
    Denied,
    Forbidden,
    ForbiddenKey,
    InvalidRequest,
    Limiter,
    LimiterError,
    NotFound,
    Unanswered,
    Unauthorized,
    UnexpectedAnswer,
)

pytestmark = pytest.mark.anyio

TOKENS = """
auth:
  tokens:
    - { name: acme, token: acme-secret, may: [call], keys: ["tenant:acme:**"] }
    - { name: boss, token: boss-secret, may: [call, read, admin] }
"""


def test_py_02_a_token_opens_what_it_may(program: str, tmp_path: Path) -> None:
    server = Server(program, tmp_path, config=TOKENS)
    with ExitStack() as stack:
        stack.callback(server.kill)

        def connected(token: str | None) -> Limiter:
            return stack.enter_context(Limiter.connect(server.url + "/", token=token))

        connected("boss-secret").define(rolling("tenant:acme:rpm", 1), rolling("tenant:zenith:rpm", 1))
        acme = connected("acme-secret")
        acme.reserve({"tenant:acme:rpm": 1})
        with pytest.raises(ForbiddenKey) as key:
            acme.reserve({"tenant:zenith:rpm": 1})
        assert key.value.key == "tenant:zenith:rpm"
        with pytest.raises(Forbidden):
            acme.define(rolling("mine", 1))
        with pytest.raises(Forbidden):
            acme.limits()
        for token in (None, "guess"):
            with pytest.raises(Unauthorized) as unauthorized:
                connected(token).reserve({"tenant:acme:rpm": 1})
            assert "guess" not in str(unauthorized.value)


async def test_py_02_a_server_that_comes_back_in_time_is_asked_again(server: Server) -> None:
    async with AsyncLimiter.connect(server.url) as limiter:
        await limiter.define(rolling("rpm", 5))
        await limiter.reserve({"rpm": 1})
        server.kill()
        with pytest.raises(Unanswered) as caught:
            await limiter.reserve({"rpm": 1})
        unanswered = caught.value
        assert server.url in unanswered.message
        assert unanswered.lease_id is not None
        assert len(unanswered.lease_id) == 26
        server.start()
        lease = await limiter.reserve({"rpm": 1}, lease_id=unanswered.lease_id)
        assert lease.id == unanswered.lease_id


async def test_py_02_a_reserve_that_waits_outlasts_an_outage(server: Server) -> None:
    async with AsyncLimiter.connect(server.url, timeout=0.2) as limiter:
        await limiter.define(rolling("rpm", 5))
        server.kill()
        with pytest.raises(Unanswered):
            await limiter.reserve({"rpm": 1}, wait=0.1)
        reserving = asyncio.ensure_future(limiter.reserve({"rpm": 1}, wait=50))
        await asyncio.sleep(0)
        await asyncio.to_thread(server.start)
        await reserving
        assert (await limiter.limits())[0]["used"] == 1


async def test_py_02_the_result_of_a_block_outlives_the_server(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncLimiter.connect(server.url) as limiter:
        await limiter.define(rolling("rpm", 5))
        async with limiter.reserve({"rpm": 1}) as lease:
            server.kill()
            answer = "paid for"
        assert answer
        assert not lease.is_completed
        assert lease.id in caplog.text


# The first loop ends with its connections open.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_py_01_a_limiter_may_be_used_in_one_event_loop_after_the_other(server: Server) -> None:
    limiter = AsyncLimiter.connect(server.url)

    async def use(*, closes: bool) -> None:
        async with limiter.reserve({"slots": 1}):
            if not closes:
                # In use here, and there.
                with pytest.raises(RuntimeError, match="another event loop"):
                    await asyncio.to_thread(asyncio.run, use(closes=True))
        if closes:
            await limiter.aclose()

    with Limiter.connect(server.url) as admin:
        admin.define(concurrency("slots", 1))
        asyncio.run(use(closes=False))
        asyncio.run(use(closes=True))
        assert admin.limits()[0]["used"] == 0
    gc.collect()


# Newer Pythons warn that a fork of a process with threads may hang.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_py_01_a_fork_has_neither_the_connections_nor_the_lease_ids_of_its_parent(server: Server) -> None:
    with Limiter.connect(server.url) as limiter:
        limiter.define(rolling("rpm", 100))
        ids = [limiter.reserve({"rpm": 1}).id]
        for _ in range(4):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    with pytest.raises(RuntimeError, match="forked"):
                        limiter.reserve({"rpm": 1})
                    own = Limiter.connect(server.url)
                    os.write(writer, own.reserve({"rpm": 1}).id.encode())
                finally:
                    os._exit(0)
            os.close(writer)
            ids.append(os.read(reader, 100).decode())
            os.close(reader)
            os.waitpid(child, 0)
        # The first characters are the time.
        assert len({lease_id[10:] for lease_id in ids}) == 5, ids
        assert limiter.limits()[0]["used"] == 5


async def test_py_02_a_request_is_repeated_with_its_lease_id(server: Server) -> None:
    class Flaky(httpx.AsyncBaseTransport):
        """Loses the first answers."""

        def __init__(self) -> None:
            self._inner = httpx.AsyncHTTPTransport()
            self.lost = 0

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            response = await self._inner.handle_async_request(request)
            if request.url.path == "/v1/reserve" and self.lost < 2:
                await response.aread()
                self.lost += 1
                raise httpx.ReadError("lost")
            return response

        async def aclose(self) -> None:
            await self._inner.aclose()

    transport = Flaky()
    async with httpx.AsyncClient(transport=transport) as client, AsyncLimiter.connect(server.url, http_client=client) as limiter:
        await limiter.define(rolling("rpm", 5))
        await limiter.reserve({"rpm": 1})
        assert transport.lost == 2
        assert (await limiter.limits())[0]["used"] == 1, "it was sent three times and counts once"


async def test_py_01_more_may_wait_than_have_a_place_at_the_server(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratelimiterd._http.WAITING_MAX", 3)
    async with AsyncLimiter.connect(server.url) as limiter:
        await limiter.define(concurrency("slots", 1))
        first = await limiter.reserve({"slots": 1})

        async def call() -> None:
            async with limiter.reserve({"slots": 1}, wait=50):
                pass

        calls = [asyncio.ensure_future(call()) for _ in range(12)]
        await until(lambda: server.waiters() == 3)
        await first.complete()
        await asyncio.gather(*calls)
        assert (await limiter.limits())[0]["used"] == 0


def test_py_01_all_pages_of_the_limits_are_read(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratelimiterd._http.PAGE_SIZE", 3)
    with Limiter.connect(server.url) as limiter:
        keys = [f"a/b c%{number}".replace(" ", "_") for number in range(7)]
        limiter.define(*(rolling(key, 1) for key in keys))
        assert [state["key"] for state in limiter.limits("a/b")] == keys
        for key in keys:
            limiter.delete(key)
        assert limiter.limits() == []


Answer = Callable[[str, bytes], tuple[int, dict[str, str], bytes]]


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Something else than a ratelimiter server, or an older one."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            status, headers, body = answer(self.path, content)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "about"),
    [
        (200, {}, b"<html>Welcome to nginx!</html>", UnexpectedAnswer, "answered 200 with '<html>Welcome to nginx!"),
        (200, {}, b"{}", UnexpectedAnswer, "is this a ratelimiter server?"),
        (200, {}, b'{"error":{"message":"of another API"}}', UnexpectedAnswer, "not an answer"),
        (200, {}, b'{"allowed":false,"retry_after_ms":"soon","denied_keys":["a"]}', UnexpectedAnswer, "not an answer"),
        (200, {}, b"[1]", UnexpectedAnswer, "answered 200 with '[1]'"),
        (302, {"location": "/login"}, b"", UnexpectedAnswer, "answered 302"),
        (404, {}, b"not here", UnexpectedAnswer, "answered 404"),
        (404, {}, b'{"error":"not_found","message":"no such path"}', NotFound, "no such path"),
        (401, {}, b'{"detail":"who?"}', Unauthorized, "answered 401"),
        (502, {}, b"<html>Bad gateway", Unanswered, "status 502"),
        (500, {}, b"oops", Unanswered, "status 500"),
        (418, {}, b'{"error":"tomorrow:x","message":"a newer server"}', LimiterError, "a newer server"),
    ],
)
def test_py_02_an_answer_of_something_else_is_told(
    status: int, headers: dict[str, str], body: bytes, kind: type[LimiterError], about: str
) -> None:
    with answering(lambda _path, _body: (status, headers, body)) as url, Limiter.connect(url) as limiter:
        with pytest.raises(LimiterError) as caught:
            limiter.reserve({"rpm": 1})
        assert type(caught.value) is kind
        assert about in str(caught.value)


def test_py_02_a_hint_of_a_proxy_is_read() -> None:
    with answering(lambda _path, _body: (503, {"retry-after": "7"}, b"later")) as url, Limiter.connect(url) as limiter:
        with pytest.raises(Unanswered) as caught:
            limiter.reserve({"rpm": 1})
        assert caught.value.retry_after == 7


async def test_py_01_a_server_of_the_first_edition_is_asked_without_waiting() -> None:
    asked: list[bool] = []

    def answer(_path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        waits = "wait_ms" in json.loads(body)
        asked.append(waits)
        if waits:
            return 400, {}, b'{"allowed":false,"retry_after_ms":0,"error":"invalid_request:wait_ms","message":"unknown field"}'
        if len(asked) < 4:
            return 200, {}, b'{"allowed":false,"retry_after_ms":1,"reserved_at_unix_ms":0,"denied_keys":["rpm"]}'
        return 200, {}, b'{"allowed":true,"retry_after_ms":0,"reserved_at_unix_ms":1736660000000}'

    with answering(answer) as url:
        async with AsyncLimiter.connect(url) as limiter:
            lease = await limiter.reserve({"rpm": 1}, wait=50)
            assert lease.reserved_at.year == 2025
        assert asked == [True, False, False, False], "it is not asked to wait again for a minute"
        asked.clear()
        with Limiter.connect(url) as blocking:
            blocking.reserve({"rpm": 1}, wait=50)
        assert asked == [True, False, False, False]


@pytest.mark.parametrize(
    "url",
    ["", "ratelimiter:8080", "ftp://h", "http://", "http://[::1", "8080", "http://me:secret@h", "http://h?secret=1", "http://h/v1/"],
)
def test_py_01_a_url_that_cannot_be_is_refused(url: str) -> None:
    for kind in (Limiter, AsyncLimiter):
        with pytest.raises(InvalidRequest) as caught:
            kind.connect(url)
        assert caught.value.field == "url"
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "secret\n", "secret one", "sécret"])
def test_py_01_a_token_that_cannot_be_is_refused_and_not_shown(token: str) -> None:
    for kind in (Limiter, AsyncLimiter):
        with pytest.raises(InvalidRequest) as caught:
            kind.connect("http://127.0.0.1:1", token=token)
        assert caught.value.field == "token"
        assert "cret" not in str(caught.value)


def test_py_02_a_client_of_ones_own_is_used_and_not_closed(server: Server) -> None:
    with httpx.Client(headers={"x-by": "me"}) as client:
        with Limiter.connect(server.url, http_client=client) as limiter:
            limiter.define(rolling("rpm", 1))
        with Limiter.connect(server.url, http_client=client) as limiter:
            limiter.reserve({"rpm": 1})
            with pytest.raises(Denied):
                limiter.reserve({"rpm": 1})
        assert not client.is_closed
