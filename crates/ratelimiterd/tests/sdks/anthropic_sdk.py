"""Anthropic's SDK for Python. Its base URL and key come from the environment, as in a program that knows nothing of the gateway."""

import asyncio

import anthropic
from anthropic import Anthropic, AsyncAnthropic

from checks import check, cut, equal, raised, refused, run, used

MODEL = "claude-sonnet-4-5"
# 4 words, and 4 tokens for the message.
MESSAGES = [{"role": "user", "content": "how are you today"}]
PROMPT_TOKENS = 8
OUTPUT_TOKENS = 7
TEXT = "word " * OUTPUT_TOKENS
NO_WAIT = {"x-ratelimiter-wait-ms": "0"}
# Stops in the middle, and stays open.
STALLS = {"x-mock-fault": "stall", "x-mock-output-tokens": "1000"}

client = Anthropic()


def message(model, using=client, max_tokens=50, **options):
    return using.messages.create(
        model=model, max_tokens=max_tokens, messages=MESSAGES, **options
    )


def used_by_message(model, usage):
    equal((usage.input_tokens, usage.output_tokens), (PROMPT_TOKENS, OUTPUT_TOKENS))
    used(model, usage.input_tokens, usage.output_tokens)


def check_events(events):
    deltas = [event.delta.text for event in events if event.type == "content_block_delta"]
    equal("".join(deltas), TEXT)
    equal((events[0].type, events[-1].type), ("message_start", "message_stop"))
    last = [event.usage.output_tokens for event in events if event.type == "message_delta"]
    equal(last, [OUTPUT_TOKENS])
    used(MODEL, events[0].message.usage.input_tokens, last[0])


@check
def plain():
    answer = message(MODEL)
    equal(answer.content[0].text, TEXT)
    used_by_message(MODEL, answer.usage)


@check
def headers():
    answer = client.messages.with_raw_response.create(
        model=MODEL, max_tokens=50, messages=MESSAGES
    )
    equal(len(answer.headers["x-ratelimiter-lease"]), 26)
    equal(answer.retries_taken, 0)
    used_by_message(MODEL, answer.parse().usage)


@check
def stream():
    check_events(list(message(MODEL, stream=True)))


@check
def stream_helper():
    with client.messages.stream(model=MODEL, max_tokens=50, messages=MESSAGES) as events:
        equal("".join(events.text_stream), TEXT)
        used_by_message(MODEL, events.get_final_message().usage)


@check
def count_tokens():
    equal(client.messages.count_tokens(model=MODEL, messages=MESSAGES).input_tokens, PROMPT_TOKENS)


@check
def models():
    assert MODEL in [model.id for model in client.models.list()]


@check
async def async_plain():
    async with AsyncAnthropic() as using:
        answers = await asyncio.gather(*[message(MODEL, using) for _ in range(4)])
    for answer in answers:
        equal(answer.content[0].text, TEXT)
        used_by_message(MODEL, answer.usage)


@check
async def async_streams():
    async with AsyncAnthropic() as using:
        check_events([event async for event in await message(MODEL, using, stream=True)])
        async with using.messages.stream(
            model=MODEL, max_tokens=50, messages=MESSAGES
        ) as events:
            used_by_message(MODEL, (await events.get_final_message()).usage)


@check
def unknown_model():
    error = raised(anthropic.NotFoundError, lambda: message("claude-unknown"))
    equal(error.body["error"]["type"], "not_found_error")


@check
def wrong_key():
    using = Anthropic(api_key="wrong")
    error = raised(anthropic.AuthenticationError, lambda: message(MODEL, using))
    equal(error.body["error"]["type"], "authentication_error")


@check
def never_fits():
    error = raised(anthropic.BadRequestError, lambda: message("small", max_tokens=101))
    equal(error.body["error"]["type"], "invalid_request_error")


@check
def no_room_for_long():
    """The wait is too long for the SDK, which is told not to try again."""
    used_by_message("one-a-day", message("one-a-day").usage)
    error = raised(anthropic.RateLimitError, lambda: message("one-a-day"))
    refused("one-a-day")
    equal(error.body["error"]["type"], "rate_limit_error")
    seconds, ms = (int(error.response.headers[name]) for name in ("retry-after", "retry-after-ms"))
    assert 60 < seconds <= 86_400, seconds
    equal(seconds, -(-ms // 1000))
    equal(error.response.headers["x-should-retry"], "false")


@check
def no_room_for_a_moment():
    """By its own pauses, the SDK would give up after 1.5 s at most."""
    for _ in range(2):
        used_by_message("one-in-two-seconds", message("one-in-two-seconds", extra_headers=NO_WAIT).usage)


@check
def no_room_until_another_call_ends():
    """Another caller has the only place until this one was refused once."""
    often = client.with_options(max_retries=100)
    answer = often.messages.with_raw_response.create(
        model="busy", max_tokens=50, messages=MESSAGES, extra_headers=NO_WAIT
    )
    assert answer.retries_taken > 0
    used_by_message("busy", answer.parse().usage)


@check
def broken_off_stream():
    model = "one-at-a-time"
    events = message(model, max_tokens=1000, stream=True, extra_headers=STALLS)
    next(event for event in events if event.type == "content_block_delta")
    once = client.with_options(max_retries=0)
    error = raised(anthropic.RateLimitError, lambda: message(model, once, extra_headers=NO_WAIT))
    refused(model)
    equal(error.response.headers["x-should-retry"], "true")
    assert int(error.response.headers["retry-after"]) > 0
    assert int(error.response.headers["retry-after-ms"]) > 0
    events.close()
    cut(model)
    # It waits at the gateway until the first one is settled.
    used_by_message(model, message(model).usage)


@check
def broken_off_stream_helper():
    model = "one-at-a-time"
    with client.messages.stream(
        model=model, max_tokens=1000, messages=MESSAGES, extra_headers=STALLS
    ) as events:
        equal(next(events.text_stream), "word ")
    cut(model)
    used_by_message(model, message(model).usage)


@check
async def async_broken_off_stream():
    model = "one-at-a-time"
    async with AsyncAnthropic() as using:
        events = await message(model, using, max_tokens=1000, stream=True, extra_headers=STALLS)
        await anext(events)
        await events.close()
        cut(model)
        used_by_message(model, (await message(model, using)).usage)


@check
def error_in_a_stream():
    model = "one-at-a-time"
    events = message(model, stream=True, extra_headers={"x-mock-fault": "error-event"})
    raised(anthropic.APIStatusError, lambda: list(events))
    cut(model)
    used_by_message(model, message(model).usage)


run()
