"""Tokens a second of a server that answers 1, 2, 4 and 8 clients at once, all of them together.

    batch.py STRATA MODEL.gguf [more flags of `strata serve`]
"""

import json
import subprocess
import sys
import threading
import time
import urllib.request

PORT = 8097
TOKENS = 256


def ask(client, taken):
    body = {"prompt": f"Client {client} asks for a long answer about rivers", "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        taken.append(json.load(answer)["usage"]["completion_tokens"])


def together(clients):
    taken = []
    threads = [threading.Thread(target=ask, args=(client, taken)) for client in range(clients)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(taken) / (time.monotonic() - began)


def main():
    strata, model, *flags = sys.argv[1:]
    server = subprocess.Popen([strata, "serve", model, "--port", str(PORT), "--slots", "8", "--max-context", "1024", *flags],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=1)
                break
            except OSError:
                time.sleep(0.1)
        print("clients   tokens/s together, three runs of", TOKENS, "tokens a client after one that is not counted")
        for clients in (1, 2, 4, 8):
            together(clients)
            runs = sorted(together(clients) for _ in range(3))
            print(f"{clients:7}   {runs[1]:8.1f}   ({runs[0]:.1f} to {runs[2]:.1f})", flush=True)
    finally:
        server.terminate()
        server.wait()


main()
