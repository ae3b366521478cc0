"""Many clients at one server: are all answers right, does anything stay behind, how long do they wait.

    python3 engine-core/strata/tests/clients/load.py http://127.0.0.1:8080 --clients 64 --seconds 300

Greedy answers of one client alone come first and are what all later ones are compared with. Then the
clients ask at the same time, streaming or not, and break some requests off at a random moment. At the
end the server must be idle, answer as before, and hold no more memory than it needed early in the run.
Needs nothing but Python; loopback only. Status 1 when an answer was wrong, a request failed, or
something stayed behind.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from urllib.parse import urlsplit

SUBJECTS = ["a river", "the moon", "bread", "a clock", "winter", "a bridge", "salt", "the sea", "a train", "glass", "a fox", "rain"]
FORMS = ["Write one sentence about {}.", "You are brief. What is special about {}? Give two reasons and an example for each of them."]


class Load:
    def __init__(self, arguments):
        address = urlsplit(arguments.address)
        if address.hostname not in ("127.0.0.1", "localhost", "::1"):
            sys.exit("only a server of this machine is loaded")
        self.host, self.port = address.hostname, address.port
        self.tokens = arguments.tokens
        self.random = random.Random(arguments.seed)
        self.prompts = [form.format(subject) for form in FORMS for subject in SUBJECTS]
        self.right = {}
        self.wrong, self.failed = [], []
        self.whole = self.broken_off = self.refused = self.generated = 0
        self.first, self.total = [], []

    async def send(self, method, path, body=None):
        reader, writer = await asyncio.open_connection(self.host, self.port)
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()
        return reader, writer

    async def head(self, reader):
        """The status and the headers, past interim ones."""
        while True:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            status = int(lines[0].split()[1])
            if status >= 200:
                headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
                return status, headers

    async def body(self, reader, headers):
        if headers.get("transfer-encoding") != "chunked":
            return await reader.read()
        parts = []
        while length := int(await reader.readline(), 16):
            parts.append(await reader.readexactly(length))
            await reader.readline()
        return b"".join(parts)

    async def get(self, path):
        reader, writer = await self.send("GET", path)
        status, headers = await self.head(reader)
        body = await self.body(reader, headers)
        writer.close()
        return status, json.loads(body)

    async def ask(self, prompt, stream):
        """A whole answer: its text and its number of tokens; `None` where the queue was full."""
        body = {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": self.tokens, "stream": stream}
        if stream:
            body["stream_options"] = {"include_usage": True}
        begun = time.monotonic()
        reader, writer = await self.send("POST", "/v1/chat/completions", body)
        try:
            status, headers = await self.head(reader)
            if status == 429:
                await asyncio.sleep(min(float(headers["retry-after"]), 1))
                return None
            if status != 200:
                raise RuntimeError(f"status {status}: {await self.body(reader, headers)}")
            if not stream:
                answer = json.loads(await self.body(reader, headers))
                text, usage = answer["choices"][0]["message"]["content"], answer["usage"]
            else:
                text, usage = await self.events(reader, begun)
            self.total.append(time.monotonic() - begun)
            return text, usage["completion_tokens"]
        finally:
            writer.close()

    async def events(self, reader, begun):
        text, usage, first = "", None, None
        while line := await reader.readline():
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                self.first.append(first - begun)
                return text, usage
            event = json.loads(line[6:])
            if "error" in event:
                raise RuntimeError(f"an error in the stream: {event}")
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                if piece := choice["delta"].get("content"):
                    first = first or time.monotonic()
                    text += piece
        raise RuntimeError(f"a stream without its end after {text!r}")

    async def break_off(self, prompt, stream):
        """Asks, and goes away while the request waits, is read or is answered."""
        body = {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": 4 * self.tokens, "stream": stream}
        reader, writer = await self.send("POST", "/v1/chat/completions", body)
        try:
            if self.random.random() < 0.5:
                await asyncio.sleep(self.random.random() * 2)
            else:
                for _ in range(self.random.randrange(1, 40)):
                    await asyncio.wait_for(reader.readline(), 60)
            self.broken_off += 1
        finally:
            if self.random.random() < 0.5:
                writer.transport.abort()
            writer.close()

    async def client(self, until):
        while time.monotonic() < until:
            prompt, stream = self.random.choice(self.prompts), self.random.random() < 0.7
            try:
                if self.random.random() < 0.25:
                    await self.break_off(prompt, stream)
                    continue
                answer = await self.ask(prompt, stream)
            except (OSError, RuntimeError, ValueError, asyncio.IncompleteReadError, TimeoutError) as error:
                self.failed.append(f"{type(error).__name__}: {error}")
                continue
            if answer is None:
                self.refused += 1
                continue
            self.whole += 1
            self.generated += answer[1]
            if answer[0] != self.right[prompt]:
                self.wrong.append((prompt, self.right[prompt], answer[0]))

    async def alone(self, seconds):
        """One client: what is right, then its speed. Prompts come again, as they will for the many."""
        for prompt in self.prompts:
            self.right[prompt] = (await self.ask(prompt, True))[0]
        self.first, self.total = [], []
        tokens, begun, at = 0, time.monotonic(), 0
        while time.monotonic() - begun < seconds:
            text, count = await self.ask(self.prompts[at % len(self.prompts)], True)
            assert text == self.right[self.prompts[at % len(self.prompts)]]
            tokens, at = tokens + count, at + 1
        return tokens / (time.monotonic() - begun)

    async def ready(self):
        """Waits while the model is loading."""
        begun = time.monotonic()
        while (answer := await self.get("/health"))[0] != 200:
            if time.monotonic() - begun > 120:
                sys.exit(f"not ready: {answer}")
            await asyncio.sleep(0.1)

    async def idle(self):
        """Seconds until the server works for nobody."""
        begun = time.monotonic()
        while time.monotonic() - begun < 10:
            _, status = await self.get("/v1/status")
            if not status["active"] and status["queue"]["taken"] == 0:
                return time.monotonic() - begun
            await asyncio.sleep(0.05)
        return None

    async def memory(self):
        _, status = await self.get("/v1/status")
        return status["memory"]["own_bytes"] / (1 << 20)


def spread(seconds):
    if not seconds:
        return "none"
    ordered = sorted(seconds)
    at = lambda share: ordered[min(int(share * len(ordered)), len(ordered) - 1)]
    return "  ".join(f"{name} {at(share):.2f} s" for name, share in [("50 %", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("most", 1)])


async def run(arguments):
    load = Load(arguments)
    await load.ready()
    alone = await load.alone(arguments.alone)
    before = await load.memory()
    print(f"one client: {alone:.1f} tokens/s; first token {spread(load.first)}; answer {spread(load.total)}")
    load.first, load.total = [], []
    begun = time.monotonic()
    until = begun + arguments.seconds
    clients = [asyncio.create_task(load.client(until)) for _ in range(arguments.clients)]
    await asyncio.sleep(arguments.seconds / 5)
    early = await load.memory()
    await asyncio.gather(*clients)
    many = load.generated / (time.monotonic() - begun)
    print(
        f"{arguments.clients} clients, {time.monotonic() - begun:.0f} s: {load.whole} answers, {load.broken_off} broken off, "
        f"{load.refused} refused by a full queue, {len(load.failed)} failed, {len(load.wrong)} wrong"
    )
    print(f"first token {spread(load.first)}")
    print(f"answer      {spread(load.total)}")
    print(f"throughput: {many:.1f} tokens/s of whole answers, {many / alone:.2f} times that of one client")
    idle = await load.idle()
    print("idle: never within 10 s" if idle is None else f"idle after {idle:.2f} s")
    for prompt in load.prompts[:4]:
        text, _ = await load.ask(prompt, False)
        if text != load.right[prompt]:
            load.wrong.append((prompt, load.right[prompt], text))
    after = await load.memory()
    print(f"memory: {before:.1f} MiB before, {early:.1f} MiB after a fifth, {after:.1f} MiB at the end")
    for wrong in load.wrong[:3]:
        print(f"wrong: {wrong}")
    for failed in load.failed[:3]:
        print(f"failed: {failed}")
    grown = after - early > arguments.growth
    if grown:
        print(f"memory grew by more than {arguments.growth} MiB")
    if load.wrong or load.failed or idle is None or grown or not load.whole or not load.broken_off:
        sys.exit(1)
    print("ok load")


parser = argparse.ArgumentParser()
parser.add_argument("address")
parser.add_argument("--clients", type=int, default=64)
parser.add_argument("--seconds", type=float, default=300, help="how long the clients ask, at most 3600")
parser.add_argument("--alone", type=float, default=20, help="seconds of one client's speed")
parser.add_argument("--tokens", type=int, default=32, help="tokens of an answer")
parser.add_argument("--growth", type=float, default=16, help="MiB that memory may grow in the last four fifths")
parser.add_argument("--seed", type=int, default=1)
arguments = parser.parse_args()
if not (0 < arguments.seconds <= 3600 and 0 < arguments.clients <= 512):
    parser.error("a load has an end")
asyncio.run(asyncio.wait_for(run(arguments), arguments.seconds * 3 + arguments.alone * 3 + 300))
