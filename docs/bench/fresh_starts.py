"""Speeds of the first and the second request of fresh processes, over a terminal like a person's.

    fresh_starts.py STRATA MODEL.gguf STARTS [more flags of `strata run`]
"""

import os
import pty
import re
import select
import subprocess
import sys
import time


def requests(strata, model, flags):
    """Decode speeds of two requests of one process, as its own report says them."""
    master, slave = pty.openpty()
    began = time.monotonic()
    command = [strata, "run", model, "--temperature", "0", "-n", "128", *flags]
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, close_fds=True)
    os.close(slave)
    text, asked, speeds = "", 0, []
    while len(speeds) < 2 and time.monotonic() - began < 120:
        if select.select([master], [], [], 5)[0]:
            try:
                text += os.read(master, 65536).decode(errors="replace")
            except OSError:
                break
        speeds = [float(speed) for speed in re.findall(r"generated \d+ at ([0-9.]+) tok/s", text)]
        if asked == len(speeds) and asked < 2 and "> " in text:
            os.write(master, b"The capital of France is\n")
            asked += 1
    process.kill()
    process.wait()
    os.close(master)
    return speeds


def main():
    strata, model, starts, *flags = sys.argv[1:]
    print("start  first request, tok/s  second request, tok/s")
    speeds = []
    for start in range(int(starts)):
        both = requests(strata, model, flags)
        speeds += both
        print(f"{start + 1:>5}  " + "  ".join(f"{speed:>20.1f}" for speed in both), flush=True)
    speeds.sort()
    print(f"slowest {speeds[0]:.1f}, median {speeds[len(speeds) // 2]:.1f}, fastest {speeds[-1]:.1f}")


main()
