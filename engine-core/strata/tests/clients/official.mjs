// Drives a server with the official `openai` package for Node, unmodified. Called by
// tests/cli/serve.rs with the server's address; the package is looked for in NODE_PATH.

import assert from "node:assert";
import { createRequire } from "node:module";

const OpenAI = createRequire(import.meta.url)("openai").default;
const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "a-key-for-tests", maxRetries: 0 });
const messages = [{ role: "user", content: "Say hello." }];
const model = (await client.models.list()).data[0].id;

const whole = await client.chat.completions.create({ model, messages, max_tokens: 6, temperature: 0 });
assert.ok(whole.choices[0].message.content);
console.log("ok chat");

let text = "";
const stream = await client.chat.completions.create({ model, messages, max_tokens: 6, temperature: 0, stream: true });
for await (const chunk of stream) {
  text += chunk.choices[0]?.delta?.content ?? "";
}
assert.strictEqual(text, whole.choices[0].message.content);
console.log("ok stream");

const parameters = {
  type: "object",
  properties: { city: { type: "string", maxLength: 12 } },
  required: ["city"],
  additionalProperties: false,
};
const called = await client.chat.completions
  .stream({
    model,
    messages: [{ role: "user", content: "What is the weather in Paris?" }],
    max_tokens: 64,
    temperature: 0,
    tools: [{ type: "function", function: { name: "get_weather", parameters } }],
    tool_choice: "required",
  })
  .finalChatCompletion();
assert.ok(JSON.parse(called.choices[0].message.tool_calls[0].function.arguments).city);
console.log("ok tools");

const formed = await client.chat.completions.create({
  model,
  messages,
  max_tokens: 64,
  temperature: 0,
  response_format: { type: "json_schema", json_schema: { name: "city", strict: true, schema: parameters } },
});
assert.ok("city" in JSON.parse(formed.choices[0].message.content));
console.log("ok schema");

await assert.rejects(client.chat.completions.create({ model, messages, temperature: 9 }), OpenAI.BadRequestError);
await assert.rejects(client.models.retrieve("nothing"), OpenAI.NotFoundError);
console.log("ok errors");

// A stream that is broken off frees its work; the next request is answered.
const long = await client.chat.completions.create({ model, messages, max_tokens: 500, stream: true });
for await (const _ of long) {
  break;
}
assert.ok((await client.chat.completions.create({ model, messages, max_tokens: 2 })).choices.length);
console.log("ok breaking off");
