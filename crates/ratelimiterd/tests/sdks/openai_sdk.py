"""OpenAI's SDK for Python. Its base URL and key come from the environment, as in a program that knows nothing of the gateway."""

import asyncio

import openai
from openai import AsyncOpenAI, OpenAI

from checks import check, cut, equal, raised, refused, run, used

MODEL = "gpt-4o"
# 4 words, and 4 tokens for the message.
PROMPT = "how are you today"
PROMPT_TOKENS = 8
MESSAGES = [{"role": "user", "content": PROMPT}]
OUTPUT_TOKENS = 7
TEXT = "word " * OUTPUT_TOKENS
NO_WAIT = {"x-ratelimiter-wait-ms": "0"}
# Stops in the middle, and stays open.
STALLS = {"x-mock-fault": "stall", "x-mock-output-tokens": "1000"}

client = OpenAI()


def chat(model, using=client, **options):
    return using.chat.completions.create(model=model, messages=MESSAGES, **options)


def used_by_chat(model, usage):
    equal((usage.prompt_tokens, usage.completion_tokens), (PROMPT_TOKENS, OUTPUT_TOKENS))
    used(model, usage.prompt_tokens, usage.completion_tokens)


def used_by_response(usage):
    equal((usage.input_tokens, usage.output_tokens), (PROMPT_TOKENS, OUTPUT_TOKENS))
    used(MODEL, usage.input_tokens, usage.output_tokens)


def text_of(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


@check
def plain():
    answer = chat(MODEL)
    equal(answer.choices[0].message.content, TEXT)
    used_by_chat(MODEL, answer.usage)


@check
def headers():
    answer = client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES)
    equal(len(answer.headers["x-ratelimiter-lease"]), 26)
    equal(answer.retries_taken, 0)
    used_by_chat(MODEL, answer.parse().usage)


@check
def stream_without_usage():
    chunks = list(chat(MODEL, stream=True))
    equal(text_of(chunks), TEXT)
    equal([chunk.usage for chunk in chunks if chunk.usage or not chunk.choices], [])
    used(MODEL, PROMPT_TOKENS, OUTPUT_TOKENS)


@check
def stream_with_usage():
    chunks = list(chat(MODEL, stream=True, stream_options={"include_usage": True}))
    equal(text_of(chunks), TEXT)
    equal([len(chunk.choices) for chunk in chunks if chunk.usage], [0])
    used_by_chat(MODEL, chunks[-1].usage)


@check
def stream_helper():
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES) as stream:
        answer = stream.get_final_completion()
    equal(answer.choices[0].message.content, TEXT)
    used(MODEL, PROMPT_TOKENS, OUTPUT_TOKENS)


@check
def legacy_completions():
    answer = client.completions.create(model=MODEL, prompt=PROMPT)
    equal(answer.choices[0].text, TEXT)
    used(MODEL, answer.usage.prompt_tokens, answer.usage.completion_tokens)


@check
def responses_plain():
    answer = client.responses.create(model=MODEL, input=PROMPT)
    equal((answer.status, answer.output_text), ("completed", TEXT))
    used_by_response(answer.usage)


@check
def responses_stream():
    events = list(client.responses.create(model=MODEL, input=PROMPT, stream=True))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    equal("".join(deltas), TEXT)
    equal(events[-1].type, "response.completed")
    used_by_response(events[-1].response.usage)


@check
def responses_stream_helper():
    with client.responses.stream(model=MODEL, input=PROMPT) as stream:
        answer = stream.get_final_response()
    equal(answer.output_text, TEXT)
    used_by_response(answer.usage)


@check
def embeddings():
    model = "text-embedding-3-small"
    answer = client.embeddings.create(model=model, input=[PROMPT, "and you"])
    equal([len(one.embedding) for one in answer.data], [8, 8])
    used(model, answer.usage.prompt_tokens, 0)


@check
def models():
    assert MODEL in [model.id for model in client.models.list()]


@check
async def async_plain():
    async with AsyncOpenAI() as using:
        answers = await asyncio.gather(*[chat(MODEL, using) for _ in range(4)])
    for answer in answers:
        equal(answer.choices[0].message.content, TEXT)
        used_by_chat(MODEL, answer.usage)


@check
async def async_streams():
    async with AsyncOpenAI() as using:
        stream = await chat(MODEL, using, stream=True, stream_options={"include_usage": True})
        chunks = [chunk async for chunk in stream]
        equal(text_of(chunks), TEXT)
        used_by_chat(MODEL, chunks[-1].usage)
        stream = await using.responses.create(model=MODEL, input=PROMPT, stream=True)
        events = [event async for event in stream]
        used_by_response(events[-1].response.usage)


@check
def unknown_model():
    error = raised(openai.NotFoundError, lambda: chat("gpt-unknown"))
    equal(error.code, "model_not_found")


@check
def wrong_key():
    error = raised(openai.AuthenticationError, lambda: chat(MODEL, OpenAI(api_key="wrong")))
    equal(error.code, "invalid_api_key")


@check
def never_fits():
    error = raised(openai.BadRequestError, lambda: chat("small", max_tokens=101))
    equal(error.code, "amount_exceeds_capacity")


@check
def no_room_for_long():
    """The wait is too long for the SDK, which is told not to try again."""
    used_by_chat("one-a-day", chat("one-a-day").usage)
    error = raised(openai.RateLimitError, lambda: chat("one-a-day"))
    refused("one-a-day")
    equal(error.code, "rate_limit_exceeded")
    seconds, ms = (int(error.response.headers[name]) for name in ("retry-after", "retry-after-ms"))
    assert 60 < seconds <= 86_400, seconds
    equal(seconds, -(-ms // 1000))
    equal(error.response.headers["x-should-retry"], "false")


@check
def no_room_for_a_moment():
    """By its own pauses, the SDK would give up after 1.5 s at most."""
    for _ in range(2):
        used_by_chat("one-in-two-seconds", chat("one-in-two-seconds", extra_headers=NO_WAIT).usage)


@check
def no_room_until_another_call_ends():
    """Another caller has the only place until this one was refused once."""
    often = client.with_options(max_retries=100)
    answer = often.chat.completions.with_raw_response.create(
        model="busy", messages=MESSAGES, extra_headers=NO_WAIT
    )
    assert answer.retries_taken > 0
    used_by_chat("busy", answer.parse().usage)


@check
def broken_off_stream():
    model = "one-at-a-time"
    stream = chat(model, stream=True, extra_headers=STALLS)
    assert next(stream).choices
    once = client.with_options(max_retries=0)
    error = raised(openai.RateLimitError, lambda: chat(model, once, extra_headers=NO_WAIT))
    refused(model)
    equal(error.response.headers["x-should-retry"], "true")
    assert int(error.response.headers["retry-after"]) > 0
    assert int(error.response.headers["retry-after-ms"]) > 0
    stream.close()
    cut(model)
    # It waits at the gateway until the first one is settled.
    used_by_chat(model, chat(model).usage)


@check
def broken_off_response():
    model = "one-at-a-time"
    with client.responses.create(
        model=model, input=PROMPT, stream=True, extra_headers=STALLS
    ) as stream:
        next(event for event in stream if event.type == "response.output_text.delta")
    cut(model)
    used_by_chat(model, chat(model).usage)


@check
async def async_broken_off_stream():
    model = "one-at-a-time"
    async with AsyncOpenAI() as using:
        stream = await chat(model, using, stream=True, extra_headers=STALLS)
        await anext(stream)
        await stream.close()
        cut(model)
        used_by_chat(model, (await chat(model, using)).usage)


@check
def error_in_a_stream():
    model = "one-at-a-time"
    stream = chat(model, stream=True, extra_headers={"x-mock-fault": "error-event"})
    raised(openai.APIError, lambda: list(stream))
    cut(model)
    used_by_chat(model, chat(model).usage)


run()
