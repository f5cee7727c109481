"""A WebSocket server with a realtime API: websocket_server.py PORT

Paths: /v1/realtime speaks events as OpenAI's realtime API does, /echo sends back what comes, /ping
pings and says when it was answered, /close/CODE closes, /denied answers 401, /health 200.
"""

import asyncio
import base64
import json
import sys
import urllib.parse

from websockets.asyncio.server import serve


def answer_without_websocket(connection, request):
    if request.path == "/health":
        return connection.respond(200, "well\n")
    if request.path == "/denied":
        return connection.respond(401, "no\n")
    return None


async def realtime(socket, model):
    count = 0

    async def send(kind, **fields):
        nonlocal count
        count += 1
        await socket.send(json.dumps({"type": kind, "event_id": f"event_{count}", **fields}))

    await send("session.created", session={"type": "realtime", "model": model})
    audio = b""
    async for message in socket:
        event = json.loads(message)
        match event["type"]:
            case "session.update":
                await send("session.updated", session=event["session"])
            case "input_audio_buffer.append":
                audio += base64.b64decode(event["audio"])
            case "response.create":
                ids = {"response_id": "resp_1", "item_id": "item_1"}
                place = {"output_index": 0, "content_index": 0}
                for at in range(0, len(audio), 4800):
                    delta = base64.b64encode(audio[at : at + 4800]).decode()
                    await send("response.output_audio.delta", delta=delta, **ids, **place)
                await send("response.done", response={"id": "resp_1", "status": "completed"})


async def handle(socket):
    url = urllib.parse.urlsplit(socket.request.path)
    if url.path == "/v1/realtime":
        await realtime(socket, urllib.parse.parse_qs(url.query)["model"][0])
    elif url.path == "/ping":
        answered = await socket.ping(b"are you there")
        await answered
        await socket.send("pong came")
        await socket.wait_closed()
    elif url.path.startswith("/close/"):
        await socket.close(int(url.path.removeprefix("/close/")), "as you said")
    else:
        async for message in socket:
            await socket.send(message)


async def main():
    async with serve(
        handle,
        "127.0.0.1",
        int(sys.argv[1]),
        process_request=answer_without_websocket,
        select_subprotocol=lambda _, offered: "realtime" if "realtime" in offered else None,
        max_size=8 << 20,
    ) as server:
        await server.serve_forever()


asyncio.run(main())
