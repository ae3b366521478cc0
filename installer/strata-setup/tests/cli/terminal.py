"""Runs a command on a terminal of its own and plays a list of steps against it.

Reads {command, steps, home, folder} as JSON from standard input, prints {screen, status}.
A step waits for a text on the screen, sends keys, or pauses.
"""

import json
import os
import pty
import select
import signal
import sys
import time

LIMIT = 60.0


def main():
    script = json.load(sys.stdin)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(script["folder"])
        environment = {"HOME": script["home"], "PATH": os.environ.get("PATH", ""), "TERM": "xterm"}
        os.execve(script["command"][0], script["command"], environment)
    screen = bytearray()
    seen = 0
    deadline = time.monotonic() + LIMIT
    gone = False

    def read(patience):
        nonlocal gone
        ready, _, _ = select.select([terminal], [], [], patience)
        if not ready:
            return
        try:
            data = os.read(terminal, 65536)
        except OSError:
            data = b""
        if data:
            screen.extend(data)
        else:
            gone = True

    for step in script["steps"]:
        if "send" in step:
            try:
                os.write(terminal, step["send"].encode())
            except OSError:
                pass
        elif "pause" in step:
            end = time.monotonic() + step["pause"]
            while time.monotonic() < end and not gone:
                read(0.05)
        else:
            text = step["wait"].encode()
            while screen.find(text, seen) < 0 and not gone and time.monotonic() < deadline:
                read(0.1)
            found = screen.find(text, seen)
            if found < 0:
                screen.extend(f"\n[never shown: {step['wait']}]\n".encode())
                break
            seen = found + len(text)
    while not gone and time.monotonic() < deadline:
        read(0.1)
    if not gone:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else f"signal {os.WTERMSIG(status)}"
    json.dump({"screen": screen.decode(errors="replace"), "status": code}, sys.stdout)


main()
