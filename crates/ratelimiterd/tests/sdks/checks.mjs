// Runs the checks of a script, and prints what their calls used.

import { isDeepStrictEqual } from "node:util";

const checks = [];
const usedByModel = {};

/** Adds a check, which fails by throwing. */
export function check(run) {
  checks.push(run);
}

export function equal(actual, expected) {
  if (!isDeepStrictEqual(actual, expected)) {
    throw new Error(`${JSON.stringify(actual)} is not ${JSON.stringify(expected)}`);
  }
}

/** The error of a call that must fail. */
export async function thrown(kind, call) {
  let answer;
  try {
    answer = await call;
  } catch (error) {
    if (error instanceof kind) return error;
    throw error;
  }
  throw new Error(`no ${kind.name}, but ${JSON.stringify(answer)}`);
}

/** What a stream or a list of pages has. */
export async function all(items) {
  const list = [];
  for await (const item of items) list.push(item);
  return list;
}

/** A call was answered to the end. */
export function used(model, inputTokens, outputTokens) {
  const of = ofModel(model);
  of.requests += 1;
  of.input += inputTokens;
  of.output += outputTokens;
}

/** A call was broken off. */
export function cut(model) {
  ofModel(model).cut += 1;
}

/** A call was refused for lack of room. */
export function refused(model) {
  ofModel(model).refused += 1;
}

function ofModel(model) {
  return (usedByModel[model] ??= { requests: 0, input: 0, output: 0, cut: 0, refused: 0 });
}

export async function run() {
  for (const one of checks) {
    try {
      await one();
    } catch (error) {
      console.log(`failed ${one.name}`);
      throw error;
    }
    console.log(`ok ${one.name}`);
  }
  console.log(`used ${JSON.stringify(usedByModel)}`);
}
