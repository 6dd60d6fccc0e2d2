"""PY-01, PY-02: one API, whether the limiter is in this process or at a server, for threads and for coroutines."""

from __future__ import annotations

import asyncio
from datetime import timezone
from typing import Any

import pytest
from conftest import AnyKind, MakeLimiter, concurrency, rolling, until
from ratelimiterd import (
    AmountExceedsCapacity,
    Closed,
    Denied,
    InvalidActual,
    InvalidAmount,
    InvalidRequest,
    KindConflict,
    LeaseConflict,
    LeaseEnded,
    LimiterError,
    NotFound,
    UnknownLimitKey,
)

pytestmark = pytest.mark.anyio

RPM = "global:llm:openai:gpt-4o:rpm"
TPM = "global:llm:openai:gpt-4o:tpm"
SLOTS = "global:llm:openai:gpt-4o:concurrency"
LIMITS = [rolling(RPM, 10), rolling(TPM, 1_000), concurrency(SLOTS, 1)]
ULID = "01J9ZC3V9W8Q4N2M6T5R7Y1K0D"


async def test_py_02_a_lease_is_corrected_to_what_was_used(limiter_with: MakeLimiter) -> None:
    async with limiter_with(LIMITS) as limiter:
        lease = await limiter.reserve({RPM: 1, TPM: 900, SLOTS: 1})
        assert [await limiter.used(key) for key in (RPM, TPM, SLOTS)] == [1, 900, 1]
        assert lease.reserved_at.tzinfo is timezone.utc
        assert (len(lease.id), lease.waited, lease.shadow_denied_keys) == (26, 0.0, ())
        await limiter.complete(lease, {TPM: 74})
        assert [await limiter.used(key) for key in (RPM, TPM, SLOTS)] == [1, 74, 0]
        assert lease.is_completed


async def test_py_02_a_denial_names_the_keys_and_when_to_ask_again(limiter_with: MakeLimiter) -> None:
    async with limiter_with(LIMITS) as limiter:
        await limiter.reserve({TPM: 900})
        with pytest.raises(Denied) as caught:
            await limiter.reserve({RPM: 1, TPM: 101})
        denied = caught.value
        assert (denied.code, denied.reason, denied.keys) == ("no_room", "no_room", (TPM,))
        assert 0 < denied.retry_after <= 60
        assert str(denied).startswith(f"no room in {TPM}; ask again in ")
        assert await limiter.used(RPM) == 0, "a denial reserves nothing"


async def test_py_02_a_paused_limit_denies(limiter_with: MakeLimiter) -> None:
    async with limiter_with([rolling(RPM, 0)]) as limiter:
        with pytest.raises(Denied) as caught:
            await limiter.reserve({RPM: 1})
        assert (caught.value.reason, caught.value.keys) == ("limit_paused", (RPM,))
        assert caught.value.retry_after > 0


async def test_py_01_a_reserve_waits_until_there_is_room(limiter_with: MakeLimiter) -> None:
    async with limiter_with(LIMITS) as limiter:
        first = await limiter.reserve({SLOTS: 1})
        second = asyncio.create_task(limiter.reserve({SLOTS: 1}, wait=50))
        await until(lambda: limiter.waiters() == 1)
        await limiter.complete(first)
        assert (await second).waited > 0


async def test_py_01_queues_take_turns(limiter_with: MakeLimiter) -> None:
    async with limiter_with(LIMITS) as limiter:
        first = await limiter.reserve({SLOTS: 1})
        order: list[str] = []

        async def call(queue: str) -> None:
            lease = await limiter.reserve({SLOTS: 1}, wait=50, queue=queue)
            order.append(queue)
            await limiter.complete(lease)

        tasks = []
        for count, queue in enumerate(["acme", "acme", "acme", "zenith"], 1):
            tasks.append(asyncio.create_task(call(queue)))
            await until(lambda count=count: limiter.waiters() == count)  # type: ignore[misc]
        await limiter.complete(first)
        await asyncio.gather(*tasks)
        assert order.index("zenith") <= 1, order


async def test_py_01_a_wait_that_is_over_is_a_denial(limiter_with: MakeLimiter) -> None:
    async with limiter_with(LIMITS) as limiter:
        await limiter.reserve({SLOTS: 1})
        with pytest.raises(Denied) as caught:
            await limiter.reserve({SLOTS: 1}, wait=0.05)
        assert caught.value.waited >= 0.05
        assert limiter.waiters() == 0


async def test_py_02_a_block_settles_its_lease(limiter_with: MakeLimiter) -> None:
    async with limiter_with(LIMITS) as limiter:
        async with limiter.block({TPM: 900, SLOTS: 1}) as lease:
            lease.settle({TPM: 74})
        assert [await limiter.used(key) for key in (TPM, SLOTS)] == [74, 0]


async def test_py_02_a_block_that_fails_gives_back_its_slot_and_keeps_what_nobody_knows(limiter_with: MakeLimiter) -> None:
    async with limiter_with(LIMITS) as limiter:
        with pytest.raises(ZeroDivisionError):
            async with limiter.block({TPM: 900, SLOTS: 1}):
                raise ZeroDivisionError
        assert [await limiter.used(key) for key in (TPM, SLOTS)] == [900, 0]


async def test_py_02_what_cannot_be_settled_is_refused_at_once(limiter_with: MakeLimiter) -> None:
    async with limiter_with(LIMITS) as limiter:
        for actuals, kind in [
            ({TPM: None}, TypeError),
            ({TPM: 1.5}, TypeError),
            ({TPM: -1}, InvalidRequest),
            ({"mistyped": 1}, InvalidActual),
        ]:
            with pytest.raises(kind):
                async with limiter.block({TPM: 100, SLOTS: 1}) as lease:
                    lease.settle(actuals)  # type: ignore[arg-type]
            assert await limiter.used(SLOTS) == 0, "the slot is given back"
        # Only the limiter knows which limits are slots.
        with pytest.raises(InvalidActual) as caught:
            async with limiter.block({TPM: 100, SLOTS: 1}) as lease:
                lease.settle({TPM: 1, SLOTS: 1})
        assert caught.value.key == SLOTS
        with pytest.raises(ZeroDivisionError):
            async with limiter.block({TPM: 100, SLOTS: 1}) as lease:
                lease.settle({TPM: 1, SLOTS: 1})
                raise ZeroDivisionError
        assert await limiter.used(SLOTS) == 0


async def test_py_02_a_lease_is_completed_with_what_was_settled(limiter_with: MakeLimiter) -> None:
    async with limiter_with(LIMITS) as limiter:
        lease = await limiter.reserve({TPM: 900, SLOTS: 1})
        lease.settle({TPM: 500})
        lease.settle({TPM: 74})
        await limiter.complete(lease)
        assert [await limiter.used(key) for key in (TPM, SLOTS)] == [74, 0]


async def test_py_01_a_closed_limiter_reserves_no_more_and_its_leases_end(limiter_with: MakeLimiter) -> None:
    async with limiter_with(LIMITS) as limiter:
        lease = await limiter.reserve({SLOTS: 1})
        waiting = asyncio.create_task(limiter.reserve({SLOTS: 1}, wait=50))
        await until(lambda: limiter.waiters() == 1)
        await limiter.close()
        for refused in (limiter.reserve({SLOTS: 1}), limiter.limits()):
            with pytest.raises(Closed):
                await refused
        await limiter.complete(lease)
        await limiter.complete(await waiting)


async def test_py_01_what_was_made_from_a_template_is_listed(limiter_with: MakeLimiter) -> None:
    async with limiter_with([rolling("tenant:*:rpm", 5)]) as limiter:
        await limiter.reserve({"tenant:acme:rpm": 2})
        (acme,) = await limiter.limits(template="tenant:*:rpm")
        assert (acme["key"], acme["used"]) == ("tenant:acme:rpm", 2)


async def test_py_02_a_lease_is_renewed(limiter_with: MakeLimiter) -> None:
    async with limiter_with(LIMITS) as limiter:
        lease = await limiter.reserve({TPM: 500, SLOTS: 1})
        until_when = await limiter.renew(lease)
        assert until_when > lease.reserved_at
        await limiter.renew(lease, {TPM: 800})
        assert await limiter.used(TPM) == 800
        await limiter.reserve({TPM: 150})
        with pytest.raises(Denied) as denied:
            await limiter.renew(lease, {TPM: 851})
        assert denied.value.keys == (TPM,)
        assert await limiter.used(TPM) == 950, "nothing has changed"
        await limiter.renew(lease, {TPM: 100})
        assert await limiter.used(TPM) == 250
        with pytest.raises(InvalidAmount) as invalid:
            await limiter.renew(lease, {RPM: 1})
        assert invalid.value.key == RPM
        await limiter.complete(lease)
        with pytest.raises(LeaseEnded):
            await limiter.renew(lease)


async def test_py_02_a_limit_in_shadow_mode_is_named(limiter_with: MakeLimiter) -> None:
    async with limiter_with([{**rolling(RPM, 1), "mode": "shadow"}]) as limiter:
        lease = await limiter.reserve({RPM: 2})
        assert lease.shadow_denied_keys == (RPM,)


async def test_py_02_a_repeated_lease_id_is_one_lease(limiter_with: MakeLimiter) -> None:
    async with limiter_with(LIMITS) as limiter:
        lease = await limiter.reserve({RPM: 1}, lease_id=ULID, job_id="job 7")
        again = await limiter.reserve({RPM: 1}, lease_id=ULID.lower())
        assert (again.id, again.reserved_at) == (lease.id, lease.reserved_at)
        assert await limiter.used(RPM) == 1
        with pytest.raises(LeaseConflict):
            await limiter.reserve({RPM: 2}, lease_id=ULID)
        await limiter.complete(ULID, {RPM: 0})
        assert await limiter.used(RPM) == 0
        with pytest.raises(LeaseEnded):
            await limiter.reserve({RPM: 1}, lease_id=ULID)


REFUSALS: list[tuple[dict[Any, Any], dict[str, Any], type[LimiterError], str, str]] = [
    ({"nope": 1}, {}, UnknownLimitKey, "key", "nope"),
    ({RPM: 11}, {}, AmountExceedsCapacity, "key", RPM),
    ({}, {}, InvalidRequest, "field", "requirements"),
    ({RPM: 0}, {}, InvalidRequest, "field", "requirements[0].amount"),
    ({TPM: 1, RPM: -1}, {}, InvalidRequest, "field", "requirements[1].amount"),
    ({RPM: 2**64}, {}, InvalidRequest, "field", "requirements[0].amount"),
    ({"two words": 1}, {}, InvalidRequest, "field", "requirements[0].key"),
    ({"global:*:rpm": 1}, {}, InvalidRequest, "field", "requirements[0].key"),
    ({RPM: 1}, {"wait": -1}, InvalidRequest, "field", "wait"),
    ({RPM: 1}, {"wait": float("nan")}, InvalidRequest, "field", "wait"),
    ({RPM: 1}, {"wait": 61, "lease_id": ULID}, InvalidRequest, "field", "wait"),
    ({RPM: 1}, {"lease_id": "7"}, InvalidRequest, "field", "lease_id"),
    ({RPM: 1}, {"lease_id": ""}, InvalidRequest, "field", "lease_id"),
    ({RPM: 1}, {"job_id": ""}, InvalidRequest, "field", "job_id"),
    ({RPM: 1}, {"wait": 1, "queue": "a\nb"}, InvalidRequest, "field", "queue"),
]


async def test_py_02_every_refusal_is_an_exception_with_its_field(limiter_with: MakeLimiter) -> None:
    async with limiter_with(LIMITS) as limiter:
        for amounts, options, kind, name, value in REFUSALS:
            with pytest.raises(LimiterError) as caught:
                await limiter.reserve(amounts, **options)
            assert type(caught.value) is kind, (amounts, options, caught.value)
            assert getattr(caught.value, name).startswith(value), (amounts, options, caught.value)
            assert caught.value.message, "it says what to do"
        for amount in (1.5, "1", None):
            with pytest.raises(TypeError):
                await limiter.reserve({RPM: amount})  # type: ignore[dict-item]
        assert await limiter.used(RPM) == 0


async def test_py_02_an_actual_of_a_slot_is_refused(limiter_with: MakeLimiter) -> None:
    async with limiter_with(LIMITS) as limiter:
        lease = await limiter.reserve({SLOTS: 1})
        with pytest.raises(InvalidActual) as caught:
            await limiter.complete(lease, {SLOTS: 1})
        assert caught.value.key == SLOTS
        assert not lease.is_completed
        await limiter.complete(lease)


async def test_py_01_limits_are_defined_listed_and_deleted(limiter_with: MakeLimiter) -> None:
    async with limiter_with(LIMITS) as limiter:
        await limiter.define(rolling("tenant:*:llm:rpm", 5), {"key": "month", "kind": "calendar", "capacity": 7, "period": "month"})
        assert [state["key"] for state in await limiter.limits("tenant:")] == ["tenant:*:llm:rpm"]
        await limiter.reserve({"tenant:acme:llm:rpm": 5})
        with pytest.raises(Denied):
            await limiter.reserve({"tenant:acme:llm:rpm": 1})
        (month,) = await limiter.limits("month")
        assert (month["kind"], month["available"], month["status"]) == ("calendar", 7, "active")
        assert month["resets_at_unix_ms"] > 0
        await limiter.delete("month")
        assert await limiter.limits("month") == []
        with pytest.raises(NotFound):
            await limiter.delete("month")
        with pytest.raises(KindConflict) as conflict:
            await limiter.define(rolling("new", 1), concurrency(RPM, 1))
        assert conflict.value.key == RPM
        assert await limiter.limits("new") == [], "all or none"
        with pytest.raises(InvalidRequest) as invalid:
            await limiter.define(rolling("new", -1))
        assert invalid.value.field == "limits[0].capacity"


async def test_py_01_who_waits_is_served_when_a_capacity_is_raised(limiter_with: MakeLimiter) -> None:
    async with limiter_with([rolling(RPM, 0)]) as limiter:
        waiting = asyncio.create_task(limiter.reserve({RPM: 1}, wait=50))
        await until(lambda: limiter.waiters() == 1)
        await limiter.define(rolling(RPM, 1))
        assert (await waiting).waited > 0


async def test_py_01_nothing_is_admitted_twice(limiter_with: MakeLimiter) -> None:
    async with limiter_with([concurrency(SLOTS, 3)]) as limiter:
        running, most = 0, 0

        async def call() -> None:
            nonlocal running, most
            for _ in range(10):
                lease = await limiter.reserve({SLOTS: 1}, wait=50)
                running += 1
                most = max(most, running)
                await asyncio.sleep(0)
                running -= 1
                await limiter.complete(lease)

        await asyncio.gather(*(call() for _ in range(10)))
        assert 1 <= most <= 3
        assert await used_slots(limiter) == 0


async def used_slots(limiter: AnyKind) -> int:
    return await limiter.used(SLOTS)
