// OpenAI's SDK for Node. Its base URL and key come from the environment, as in a program that knows nothing of the gateway.

import OpenAI from "openai";

import { all, check, cut, equal, refused, run, thrown, used } from "./checks.mjs";

const MODEL = "gpt-4o";
// 4 words, and 4 tokens for the message.
const PROMPT = "how are you today";
const PROMPT_TOKENS = 8;
const messages = [{ role: "user", content: PROMPT }];
const OUTPUT_TOKENS = 7;
const TEXT = "word ".repeat(OUTPUT_TOKENS);
const NO_WAIT = { headers: { "x-ratelimiter-wait-ms": "0" } };
// Stops in the middle, and stays open.
const STALLS = { headers: { "x-mock-fault": "stall", "x-mock-output-tokens": "1000" } };

const client = new OpenAI();

function chat(model, fields, options, using = client) {
  return using.chat.completions.create({ model, messages, ...fields }, options);
}

function usedByChat(model, usage) {
  equal([usage.prompt_tokens, usage.completion_tokens], [PROMPT_TOKENS, OUTPUT_TOKENS]);
  used(model, usage.prompt_tokens, usage.completion_tokens);
}

function usedByResponse(usage) {
  equal([usage.input_tokens, usage.output_tokens], [PROMPT_TOKENS, OUTPUT_TOKENS]);
  used(MODEL, usage.input_tokens, usage.output_tokens);
}

function textOf(chunks) {
  return chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
}

check(async function plain() {
  const answer = await chat(MODEL);
  equal(answer.choices[0].message.content, TEXT);
  usedByChat(MODEL, answer.usage);
});

check(async function headers() {
  const { data, response } = await chat(MODEL).withResponse();
  equal(response.headers.get("x-ratelimiter-lease").length, 26);
  usedByChat(MODEL, data.usage);
});

check(async function many_at_a_time() {
  const answers = await Promise.all(Array.from({ length: 4 }, () => chat(MODEL)));
  for (const answer of answers) usedByChat(MODEL, answer.usage);
});

check(async function stream_without_usage() {
  const chunks = await all(await chat(MODEL, { stream: true }));
  equal(textOf(chunks), TEXT);
  equal(chunks.filter((chunk) => chunk.usage || chunk.choices.length === 0), []);
  used(MODEL, PROMPT_TOKENS, OUTPUT_TOKENS);
});

check(async function stream_with_usage() {
  const fields = { stream: true, stream_options: { include_usage: true } };
  const chunks = await all(await chat(MODEL, fields));
  equal(textOf(chunks), TEXT);
  equal(chunks.filter((chunk) => chunk.usage).map((chunk) => chunk.choices), [[]]);
  usedByChat(MODEL, chunks.at(-1).usage);
});

check(async function stream_helper() {
  const answer = await client.chat.completions.stream({ model: MODEL, messages }).finalChatCompletion();
  equal(answer.choices[0].message.content, TEXT);
  used(MODEL, PROMPT_TOKENS, OUTPUT_TOKENS);
});

check(async function legacy_completions() {
  const answer = await client.completions.create({ model: MODEL, prompt: PROMPT });
  equal(answer.choices[0].text, TEXT);
  used(MODEL, answer.usage.prompt_tokens, answer.usage.completion_tokens);
});

check(async function responses_plain() {
  const answer = await client.responses.create({ model: MODEL, input: PROMPT });
  equal([answer.status, answer.output_text], ["completed", TEXT]);
  usedByResponse(answer.usage);
});

check(async function responses_stream() {
  const stream = await client.responses.create({ model: MODEL, input: PROMPT, stream: true });
  const events = await all(stream);
  const deltas = events.filter((event) => event.type === "response.output_text.delta");
  equal(deltas.map((event) => event.delta).join(""), TEXT);
  equal(events.at(-1).type, "response.completed");
  usedByResponse(events.at(-1).response.usage);
});

check(async function responses_stream_helper() {
  const answer = await client.responses.stream({ model: MODEL, input: PROMPT }).finalResponse();
  equal(answer.output_text, TEXT);
  usedByResponse(answer.usage);
});

check(async function embeddings() {
  const model = "text-embedding-3-small";
  const answer = await client.embeddings.create({ model, input: [PROMPT, "and you"] });
  equal(answer.data.map((one) => one.embedding.length), [8, 8]);
  used(model, answer.usage.prompt_tokens, 0);
});

check(async function models() {
  const listed = await all(client.models.list());
  equal(listed.some((model) => model.id === MODEL), true);
});

check(async function unknown_model() {
  const error = await thrown(OpenAI.NotFoundError, chat("gpt-unknown"));
  equal(error.code, "model_not_found");
});

check(async function wrong_key() {
  const using = new OpenAI({ apiKey: "wrong" });
  const error = await thrown(OpenAI.AuthenticationError, chat(MODEL, {}, {}, using));
  equal(error.code, "invalid_api_key");
});

check(async function never_fits() {
  const error = await thrown(OpenAI.BadRequestError, chat("small", { max_tokens: 101 }));
  equal(error.code, "amount_exceeds_capacity");
});

// The wait is too long for the SDK, which is told not to try again.
check(async function no_room_for_long() {
  usedByChat("one-a-day", (await chat("one-a-day")).usage);
  const error = await thrown(OpenAI.RateLimitError, chat("one-a-day"));
  refused("one-a-day");
  equal(error.code, "rate_limit_exceeded");
  const seconds = Number(error.headers.get("retry-after"));
  equal(seconds > 60 && seconds <= 86_400, true);
  equal(seconds, Math.ceil(Number(error.headers.get("retry-after-ms")) / 1000));
  equal(error.headers.get("x-should-retry"), "false");
});

// By its own pauses, the SDK would give up after 1.5 s at most.
check(async function no_room_for_a_moment() {
  for (let call = 0; call < 2; call += 1) {
    usedByChat("one-in-two-seconds", (await chat("one-in-two-seconds", {}, NO_WAIT)).usage);
  }
});

// Another caller has the only place until this one was refused once.
check(async function no_room_until_another_call_ends() {
  const answer = await chat("busy", {}, { ...NO_WAIT, maxRetries: 100 });
  usedByChat("busy", answer.usage);
});

check(async function aborted_stream() {
  const model = "one-at-a-time";
  const stream = await chat(model, { stream: true }, STALLS);
  for await (const chunk of stream) {
    equal(chunk.choices.length, 1);
    const error = await thrown(
      OpenAI.RateLimitError,
      chat(model, {}, { ...NO_WAIT, maxRetries: 0 }),
    );
    refused(model);
    equal(error.headers.get("x-should-retry"), "true");
    equal(Number(error.headers.get("retry-after")) > 0, true);
    equal(Number(error.headers.get("retry-after-ms")) > 0, true);
    stream.controller.abort();
    break;
  }
  cut(model);
  // It waits at the gateway until the first one is settled.
  usedByChat(model, (await chat(model)).usage);
});

check(async function stream_that_is_not_read_on() {
  const model = "one-at-a-time";
  for await (const chunk of await chat(model, { stream: true }, STALLS)) {
    equal(chunk.choices.length, 1);
    break;
  }
  cut(model);
  usedByChat(model, (await chat(model)).usage);
});

check(async function aborted_response() {
  const model = "one-at-a-time";
  const stream = await client.responses.create({ model, input: PROMPT, stream: true }, STALLS);
  for await (const event of stream) {
    if (event.type === "response.output_text.delta") stream.controller.abort();
  }
  cut(model);
  usedByChat(model, (await chat(model)).usage);
});

check(async function error_in_a_stream() {
  const model = "one-at-a-time";
  const stream = await chat(model, { stream: true }, { headers: { "x-mock-fault": "error-event" } });
  await thrown(OpenAI.APIError, all(stream));
  cut(model);
  usedByChat(model, (await chat(model)).usage);
});

await run();
