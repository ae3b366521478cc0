"""Drives a server with the official `openai` and `anthropic` packages, unmodified.

Called by tests/cli/serve.rs with the server's address. Fails with an assertion; prints `ok NAME` for
each trial.
"""

import json
import sys

import anthropic
import openai

ADDRESS = sys.argv[1]
KEY = "a-key-for-tests"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": CITY}}
ASK = [{"role": "user", "content": "What is the weather in Paris?"}]
# The newest `anthropic` has no parameter for it.
GREEDY = {"temperature": 0}
HELLO = [{"role": "user", "content": "Say hello."}]

o = openai.OpenAI(base_url=f"{ADDRESS}/v1", api_key=KEY, max_retries=0, timeout=300)
a = anthropic.Anthropic(base_url=ADDRESS, api_key=KEY, max_retries=0, timeout=300)


def models():
    (model,) = o.models.list().data
    assert o.models.retrieve(model.id).id == model.id
    return model.id


MODEL = models()


def chat():
    answer = o.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=6, temperature=0)
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def chat_stream():
    whole = o.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=6, temperature=0)
    stream = o.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=6, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content, (text, whole)
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason


def choices_and_log_probabilities():
    answer = o.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=3, n=2, seed=7, temperature=1, logprobs=True, top_logprobs=2
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    for choice in answer.choices:
        assert len(choice.logprobs.content) == 3 or choice.finish_reason == "stop"
        for token in choice.logprobs.content:
            assert token.logprob <= 0 and len(token.top_logprobs) == 2
    again = o.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=3, n=2, seed=7, temperature=1)
    texts = [choice.message.content for choice in again.choices]
    assert texts == [choice.message.content for choice in answer.choices]


def tools():
    answer = o.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=64, temperature=0, tools=[TOOL], tool_choice="required"
    )
    (call,) = answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls"
    assert call.function.name == "get_weather" and json.loads(call.function.arguments)["city"]
    # The result goes back, and the model goes on.
    messages = ASK + [answer.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "Sunny, 21 °C"}]
    after = o.chat.completions.create(model=MODEL, messages=messages, max_tokens=5, tools=[TOOL])
    assert after.choices[0].finish_reason in ("stop", "length", "tool_calls")


def tools_stream():
    choice = {"type": "function", "function": {"name": "get_weather"}}
    with o.chat.completions.stream(
        model=MODEL, messages=ASK, max_tokens=64, temperature=0, tools=[TOOL], tool_choice=choice
    ) as stream:
        answer = stream.get_final_completion()
    (call,) = answer.choices[0].message.tool_calls
    assert json.loads(call.function.arguments)["city"]


def schema():
    answer = o.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "A person."}],
        max_tokens=64,
        temperature=0,
        response_format={"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": SCHEMA}},
    )
    person = json.loads(answer.choices[0].message.content)
    assert set(person) == {"name", "age"} and 0 <= person["age"] <= 99


def completions():
    answer = o.completions.create(model=MODEL, prompt="The capital of France is", max_tokens=3, temperature=0, logprobs=1)
    assert answer.choices[0].text and len(answer.choices[0].logprobs.tokens) == 3
    text = "".join(
        part.choices[0].text
        for part in o.completions.create(
            model=MODEL, prompt="The capital of France is", max_tokens=3, temperature=0, stream=True
        )
    )
    assert text == answer.choices[0].text


def responses():
    answer = o.responses.create(model=MODEL, input="Say hello.", max_output_tokens=6, temperature=0)
    assert answer.output_text and answer.status in ("completed", "incomplete")
    kinds, text = [], ""
    for event in o.responses.create(model=MODEL, input="Say hello.", max_output_tokens=6, temperature=0, stream=True):
        kinds.append(event.type)
        if event.type == "response.output_text.delta":
            text += event.delta
    assert text == answer.output_text
    assert kinds[0] == "response.created" and kinds[-1] in ("response.completed", "response.incomplete")
    tool = {"type": "function", "name": "get_weather", "parameters": CITY, "strict": True}
    answer = o.responses.create(
        model=MODEL, input=ASK, tools=[tool], tool_choice="required", max_output_tokens=64, temperature=0
    )
    (call,) = [item for item in answer.output if item.type == "function_call"]
    assert json.loads(call.arguments)["city"]


def messages():
    answer = a.messages.create(model=MODEL, max_tokens=6, messages=HELLO, system="Be kind.", extra_body=GREEDY)
    assert answer.content[0].type == "text" and answer.stop_reason in ("end_turn", "max_tokens")
    with a.messages.stream(
        model=MODEL, max_tokens=6, messages=HELLO, system="Be kind.", extra_body=GREEDY
    ) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == answer.content[0].text == final.content[0].text
    assert final.usage.output_tokens == answer.usage.output_tokens
    count = a.messages.count_tokens(model=MODEL, messages=HELLO, system="Be kind.").input_tokens
    assert count == answer.usage.input_tokens + answer.usage.cache_read_input_tokens


def message_tools():
    tool = {"name": "get_weather", "description": "Weather of a city", "input_schema": CITY}
    asked = dict(model=MODEL, max_tokens=64, tools=[tool], messages=ASK, extra_body=GREEDY)
    answer = a.messages.create(tool_choice={"type": "any"}, **asked)
    (call,) = [block for block in answer.content if block.type == "tool_use"]
    assert answer.stop_reason == "tool_use" and call.input["city"]
    with a.messages.stream(tool_choice={"type": "tool", "name": "get_weather"}, **asked) as stream:
        final = stream.get_final_message()
    assert [block.input["city"] for block in final.content if block.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "Sunny"}
    turns = ASK + [{"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
    after = a.messages.create(model=MODEL, max_tokens=5, tools=[tool], messages=turns)
    assert after.stop_reason in ("end_turn", "max_tokens", "tool_use")


def raises(kind, work):
    try:
        work()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def errors():
    wrong = openai.OpenAI(base_url=f"{ADDRESS}/v1", api_key="another-key", max_retries=0)
    raises(openai.AuthenticationError, wrong.models.list)
    raises(openai.NotFoundError, lambda: o.models.retrieve("no-such-model"))
    error = raises(
        openai.BadRequestError,
        lambda: o.chat.completions.create(model=MODEL, messages=HELLO, extra_body={"temprature": 1}),
    )
    assert error.code == "unknown_parameter" and error.param == "temprature"
    error = raises(
        openai.BadRequestError,
        lambda: o.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "word " * 20000}]),
    )
    assert error.code == "context_length_exceeded"
    raises(openai.BadRequestError, lambda: o.embeddings.create(model=MODEL, input="x"))
    wrong = anthropic.Anthropic(base_url=ADDRESS, api_key="another-key", max_retries=0)
    raises(anthropic.AuthenticationError, lambda: wrong.messages.create(model=MODEL, max_tokens=1, messages=HELLO))
    raises(anthropic.BadRequestError, lambda: a.messages.create(model=MODEL, max_tokens=0, messages=HELLO))


for trial in [
    chat,
    chat_stream,
    choices_and_log_probabilities,
    tools,
    tools_stream,
    schema,
    completions,
    responses,
    messages,
    message_tools,
    errors,
]:
    trial()
    print(f"ok {trial.__name__}", flush=True)
