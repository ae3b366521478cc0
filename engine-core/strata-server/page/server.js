// Requests to the server that this page came from.

import * as store from "./store.js";

let key = store.key();

export function setKey(value, forLong) {
  key = value;
  store.keepKey(value, forLong);
}

export class Refused extends Error {
  constructor(status, message, hints) {
    super(message);
    this.status = status;
    this.hints = hints ?? [];
  }
}

async function ask(path, options = {}) {
  const headers = { "content-type": "application/json" };
  if (key) {
    headers.authorization = `Bearer ${key}`;
  }
  const response = await fetch(path, { ...options, headers });
  if (response.ok) {
    return response;
  }
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch {
    // No JSON: the status has to do.
  }
  throw new Refused(response.status, error.message ?? `status ${response.status}`, error.strata?.hints);
}

export async function status() {
  return (await ask("/v1/status")).json();
}

// The chunks of an answer, one after another.
export async function* chat(body, signal) {
  const response = await ask("/v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  let ended = false;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) {
      break;
    }
    buffer += value;
    let end;
    while ((end = buffer.indexOf("\n\n")) >= 0) {
      const event = buffer.slice(0, end);
      buffer = buffer.slice(end + 2);
      const data = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data === "[DONE]") {
        ended = true;
      } else if (data) {
        const chunk = JSON.parse(data);
        if (chunk.error) {
          throw new Refused(500, chunk.error.message, chunk.error.strata?.hints);
        }
        yield chunk;
      }
    }
  }
  if (!ended) {
    throw new Refused(0, "the answer broke off: the server went away");
  }
}
