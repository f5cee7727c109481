"""Calls a server that plays what a router does not, as the official client does it.

openai_played.py BASE_URL calls        errors, retries, time, a broken stream, embeddings, a transcription
openai_played.py BASE_URL embeddings   embeddings alone
openai_played.py BASE_URL images       one chat with 100 MB of images in it

Fails where the client does not see what it should; else prints how many answers it was given.
"""

import base64
import sys
import zlib

import openai

base_url, what = sys.argv[1:3]
answers = 0


def client(**more):
    more = {"max_retries": 0, "timeout": 60, **more}
    return openai.OpenAI(base_url=base_url, api_key="secret-key", **more)


def chat(client, model, **more):
    messages = [{"role": "user", "content": "hello"}]
    return client.chat.completions.create(model=model, messages=messages, **more)


def raises(kind, call):
    try:
        result = call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} but {result}")


def embeddings():
    global answers
    for format in ["float", "base64"]:
        more = {} if format == "base64" else {"encoding_format": format}
        answer = client().embeddings.create(model="m", input=["hello"], **more)
        answers += 1
        assert answer.data[0].embedding == [0.25, -0.5], answer
        assert answer.usage.prompt_tokens == 3, answer


def calls():
    global answers
    # Each status is the exception that the client knows for it, with the server's own words.
    for status, kind in [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (422, openai.UnprocessableEntityError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ]:
        for stream in [False, True]:
            error = raises(kind, lambda: chat(client(), f"status-{status}", stream=stream))
            answers += 1
            assert error.status_code == status, error.status_code
            assert error.body["message"] == f"{status} it is", error.body
            assert "x-kv-usage" in error.response.headers, error.response.headers
            assert error.request_id, error.response.headers

    # It tries again by itself, each time as a request of its own.
    answer = chat(client(max_retries=2), "busy-twice")
    answers += 3
    assert answer.choices[0].message.content == "hi", answer

    # It gives up waiting.
    raises(openai.APITimeoutError, lambda: chat(client(timeout=0.5), "silent"))

    # A stream that breaks off is an error, behind all that came of it.
    stream = chat(client(), "breaks-off", stream=True)
    answers += 1
    seen = []

    def read():
        for chunk in stream:
            seen.append(chunk.choices[0].delta.content)

    error = raises(Exception, read)
    assert not isinstance(error, (StopIteration, AssertionError)), repr(error)
    assert seen == ["0 ", "1 ", "2 "], seen

    embeddings()

    audio = bytes(n * 7 % 251 for n in range(3_000_000))
    answer = client().audio.transcriptions.create(model="m", file=("speech.wav", audio))
    answers += 1
    length = int(answer.text.split()[0])
    assert 3_000_000 < length < 3_002_000, answer


def images():
    global answers
    image = base64.b64encode(bytes(n % 253 for n in range(3_000_000))).decode()
    assert len(image) == 4_000_000
    images = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{n:03}{image}"}}
        for n in range(25)
    ]

    def sum_of(request):
        request.headers["x-body-crc"] = str(zlib.crc32(request.read()))

    hooks = {"request": [sum_of]}
    with openai.DefaultHttpxClient(event_hooks=hooks) as http:
        content = [{"type": "text", "text": "What is this?"}, *images]
        messages = [{"role": "user", "content": content}]
        calling = client(http_client=http)
        answer = calling.chat.completions.create(model="m", messages=messages)
    answers += 1
    assert answer.choices[0].message.content == "hi", answer


{"calls": calls, "embeddings": embeddings, "images": images}[what]()
print(answers)
