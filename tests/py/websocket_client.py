"""Uses websocket_server.py as real clients do: websocket_client.py ADDRESS kvgauge|direct

Prints what it saw, a line each; fails where that is not what the server does.
"""

import asyncio
import base64
import random
import sys

import openai
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

address, way = sys.argv[1:3]
url = f"ws://{address}"


def headers(response):
    if way == "kvgauge":
        value = response.headers["X-KV-Usage"]
        assert 0 <= float(value) <= 1 and len(value) == 6, value
    else:
        assert "X-KV-Usage" not in response.headers


async def echoes():
    random.seed(1)
    sent = [
        "",
        "short",
        "é" * 300_000,
        "a" * (1 << 20),
        random.randbytes(1 << 20),
        bytes(range(256)) * 40,
    ]
    for compression in ["deflate", None]:
        options = {"subprotocols": ["realtime"], "compression": compression, "max_size": 8 << 20}
        async with connect(f"{url}/echo", **options) as socket:
            headers(socket.response)
            names = [extension.name for extension in socket.protocol.extensions]
            assert names == (["permessage-deflate"] if compression else []), names
            assert socket.subprotocol == "realtime", socket.subprotocol
            for message in sent:
                await socket.send(message)
                back = await socket.recv()
                assert back == message, (len(back), len(message))
            # All at once, and one in fragments.
            await asyncio.gather(*[socket.send(str(n)) for n in range(200)])
            assert [await socket.recv() for _ in range(200)] == [str(n) for n in range(200)]
            await socket.send(["frag", "men", "ts"])
            assert await socket.recv() == "fragments"
            latency = await (await socket.ping(b"ping"))
            assert latency >= 0
        assert socket.close_code == 1000, socket.close_code
        print("echo", names, socket.subprotocol, socket.close_code)


async def ends():
    async with connect(f"{url}/ping") as socket:
        print("ping", await socket.recv())
    for code in [1000, 1011, 4001]:
        async with connect(f"{url}/close/{code}") as socket:
            try:
                await socket.recv()
            except ConnectionClosed as closed:
                print("close", closed.rcvd.code, closed.rcvd.reason)
    async with connect(f"{url}/echo") as socket:
        await socket.close(4002, "my own")
        print("close", socket.close_code, socket.close_reason)
    try:
        async with connect(f"{url}/denied"):
            raise AssertionError("let in")
    except InvalidStatus as denied:
        headers(denied.response)
        print("denied", denied.response.status_code, denied.response.body)


def realtime():
    audio = random.randbytes(480_000)
    client = openai.OpenAI(base_url=f"http://{address}/v1", api_key="secret-key", max_retries=0)
    with client.realtime.connect(model="m-a") as connection:
        event = connection.recv()
        assert event.type == "session.created" and event.session.model == "m-a", event
        connection.session.update(session={"type": "realtime", "instructions": "be brief"})
        assert connection.recv().session.instructions == "be brief"
        for at in range(0, len(audio), 9600):
            piece = base64.b64encode(audio[at : at + 9600]).decode()
            connection.input_audio_buffer.append(audio=piece)
        connection.response.create()
        back = b""
        deltas = 0
        for event in connection:
            if event.type == "response.done":
                break
            assert event.type == "response.output_audio.delta", event
            back += base64.b64decode(event.delta)
            deltas += 1
        assert back == audio, (len(back), len(audio))
        print("realtime", deltas, event.response.status)


asyncio.run(echoes())
asyncio.run(ends())
realtime()
