"""Calls an OpenAI API as its official client does: openai_client.py BASE_URL MODEL plain|pd

Fails where the client does not see what it should; else prints how many HTTP calls it made.
"""

import sys

import openai

base_url, model, mode = sys.argv[1:4]
client = openai.OpenAI(base_url=base_url, api_key="secret-key", max_retries=0, timeout=30)
calls = 0


def chat(content, **more):
    global calls
    calls += 1
    messages = [{"role": "user", "content": content}]
    return client.chat.completions.with_raw_response.create(
        model=model, messages=messages, max_tokens=8, **more
    )


def usage(raw):
    """X-KV-Usage is there, once, and a decimal from 0 to 1."""
    value = raw.headers["x-kv-usage"]
    assert 0 <= float(value) <= 1 and len(value) == 6, value


def fails(kind, status, call):
    try:
        call()
    except kind as error:
        assert error.status_code == status, (error.status_code, status)
        usage(error.response)
    else:
        raise AssertionError(f"{status} did not reach the client")


# Whole answers.
raw = chat("hello")
usage(raw)
answer = raw.parse()
assert answer.choices[0].message.content, answer
assert answer.usage.completion_tokens == 8, answer.usage
raw = chat("hello", user="someone", temperature=0.5, stop=["x"])
assert raw.parse().object == "chat.completion"

# Streams, without and with usage.
raw = chat("hello", stream=True)
usage(raw)
chunks = list(raw.parse())
assert len(chunks) > 2, chunks
assert all(chunk.usage is None for chunk in chunks), chunks
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert text, chunks
raw = chat("hello", stream=True, stream_options={"include_usage": True})
chunks = list(raw.parse())
assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 8, chunks[-1]

# Completions and models.
calls += 1
completion = client.completions.create(model=model, prompt="hello", max_tokens=4)
assert completion.usage.completion_tokens == 4, completion
calls += 1
raw = client.models.with_raw_response.list()
usage(raw)

# Errors, each as the exception that the client knows for it.
fails(openai.BadRequestError, 400, lambda: chat("hello", max_completion_tokens="many"))
calls += 1
fails(openai.NotFoundError, 404, lambda: client.get("/nope", cast_to=object))
for status, kind in [(429, openai.RateLimitError), (503, openai.InternalServerError)]:
    try:
        chat(f"sim:status={status}")
    except openai.APIStatusError as error:
        # A disaggregated router makes a 500 of a worker's 429; a plain one passes it on.
        expected = 500 if (mode, status) == ("pd", 429) else status
        assert error.status_code == expected, (error.status_code, expected)
        if error.status_code == status:
            assert isinstance(error, kind), error
        usage(error.response)
    else:
        raise AssertionError(f"{status} did not reach the client")
try:
    for _ in chat(f"sim:status=429", stream=True).parse():
        pass
except (openai.APIError, ValueError):
    pass

print(calls)
