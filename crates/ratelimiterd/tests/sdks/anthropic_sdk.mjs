// Anthropic's SDK for Node. Its base URL and key come from the environment, as in a program that knows nothing of the gateway.

import Anthropic from "@anthropic-ai/sdk";

import { all, check, cut, equal, refused, run, thrown, used } from "./checks.mjs";

const MODEL = "claude-sonnet-4-5";
// 4 words, and 4 tokens for the message.
const messages = [{ role: "user", content: "how are you today" }];
const PROMPT_TOKENS = 8;
const OUTPUT_TOKENS = 7;
const TEXT = "word ".repeat(OUTPUT_TOKENS);
const NO_WAIT = { headers: { "x-ratelimiter-wait-ms": "0" } };
// Stops in the middle, and stays open.
const STALLS = { headers: { "x-mock-fault": "stall", "x-mock-output-tokens": "1000" } };

const client = new Anthropic();

function message(model, fields, options, using = client) {
  return using.messages.create({ model, max_tokens: 50, messages, ...fields }, options);
}

function usedByMessage(model, usage) {
  equal([usage.input_tokens, usage.output_tokens], [PROMPT_TOKENS, OUTPUT_TOKENS]);
  used(model, usage.input_tokens, usage.output_tokens);
}

check(async function plain() {
  const answer = await message(MODEL);
  equal(answer.content[0].text, TEXT);
  usedByMessage(MODEL, answer.usage);
});

check(async function headers() {
  const { data, response } = await message(MODEL).withResponse();
  equal(response.headers.get("x-ratelimiter-lease").length, 26);
  usedByMessage(MODEL, data.usage);
});

check(async function many_at_a_time() {
  const answers = await Promise.all(Array.from({ length: 4 }, () => message(MODEL)));
  for (const answer of answers) usedByMessage(MODEL, answer.usage);
});

check(async function stream() {
  const events = await all(await message(MODEL, { stream: true }));
  const deltas = events.filter((event) => event.type === "content_block_delta");
  equal(deltas.map((event) => event.delta.text).join(""), TEXT);
  equal([events[0].type, events.at(-1).type], ["message_start", "message_stop"]);
  const last = events.find((event) => event.type === "message_delta");
  equal(last.usage.output_tokens, OUTPUT_TOKENS);
  used(MODEL, events[0].message.usage.input_tokens, last.usage.output_tokens);
});

check(async function stream_helper() {
  const events = client.messages.stream({ model: MODEL, max_tokens: 50, messages });
  const answer = await events.finalMessage();
  equal(answer.content[0].text, TEXT);
  usedByMessage(MODEL, answer.usage);
});

check(async function count_tokens() {
  const counted = await client.messages.countTokens({ model: MODEL, messages });
  equal(counted.input_tokens, PROMPT_TOKENS);
});

check(async function models() {
  const listed = await all(client.models.list());
  equal(listed.some((model) => model.id === MODEL), true);
});

check(async function unknown_model() {
  const error = await thrown(Anthropic.NotFoundError, message("claude-unknown"));
  equal(error.error.error.type, "not_found_error");
});

check(async function wrong_key() {
  const using = new Anthropic({ apiKey: "wrong" });
  const error = await thrown(Anthropic.AuthenticationError, message(MODEL, {}, {}, using));
  equal(error.error.error.type, "authentication_error");
});

check(async function never_fits() {
  const error = await thrown(Anthropic.BadRequestError, message("small", { max_tokens: 101 }));
  equal(error.error.error.type, "invalid_request_error");
});

// The wait is too long for the SDK, which is told not to try again.
check(async function no_room_for_long() {
  usedByMessage("one-a-day", (await message("one-a-day")).usage);
  const error = await thrown(Anthropic.RateLimitError, message("one-a-day"));
  refused("one-a-day");
  equal(error.error.error.type, "rate_limit_error");
  const seconds = Number(error.headers.get("retry-after"));
  equal(seconds > 60 && seconds <= 86_400, true);
  equal(seconds, Math.ceil(Number(error.headers.get("retry-after-ms")) / 1000));
  equal(error.headers.get("x-should-retry"), "false");
});

// By its own pauses, the SDK would give up after 1.5 s at most.
check(async function no_room_for_a_moment() {
  for (let call = 0; call < 2; call += 1) {
    usedByMessage("one-in-two-seconds", (await message("one-in-two-seconds", {}, NO_WAIT)).usage);
  }
});

// Another caller has the only place until this one was refused once.
check(async function no_room_until_another_call_ends() {
  const answer = await message("busy", {}, { ...NO_WAIT, maxRetries: 100 });
  usedByMessage("busy", answer.usage);
});

check(async function aborted_stream() {
  const model = "one-at-a-time";
  const events = await message(model, { max_tokens: 1000, stream: true }, STALLS);
  for await (const event of events) {
    if (event.type !== "content_block_delta") continue;
    const error = await thrown(
      Anthropic.RateLimitError,
      message(model, {}, { ...NO_WAIT, maxRetries: 0 }),
    );
    refused(model);
    equal(error.headers.get("x-should-retry"), "true");
    equal(Number(error.headers.get("retry-after")) > 0, true);
    equal(Number(error.headers.get("retry-after-ms")) > 0, true);
    events.controller.abort();
    break;
  }
  cut(model);
  // It waits at the gateway until the first one is settled.
  usedByMessage(model, (await message(model)).usage);
});

check(async function stream_that_is_not_read_on() {
  const model = "one-at-a-time";
  for await (const event of await message(model, { max_tokens: 1000, stream: true }, STALLS)) {
    if (event.type === "content_block_delta") break;
  }
  cut(model);
  usedByMessage(model, (await message(model)).usage);
});

check(async function aborted_stream_helper() {
  const model = "one-at-a-time";
  const events = client.messages.stream({ model, max_tokens: 1000, messages }, STALLS);
  events.on("text", () => events.abort());
  await thrown(Anthropic.APIUserAbortError, events.finalMessage());
  cut(model);
  usedByMessage(model, (await message(model)).usage);
});

check(async function error_in_a_stream() {
  const model = "one-at-a-time";
  const events = await message(model, { stream: true }, { headers: { "x-mock-fault": "error-event" } });
  await thrown(Anthropic.APIError, all(events));
  cut(model);
  usedByMessage(model, (await message(model)).usage);
});

await run();
