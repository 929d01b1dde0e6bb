#!/usr/bin/env python3
"""Run a build and say how far it is: show_progress.py LOG COMMAND...

All that COMMAND prints goes to LOG. On a terminal its last progress line ("[12/393] Building ...", as ninja prints them)
stays in the last line of the screen; else one is printed every 20 seconds. Exits as COMMAND does.
"""
import re
import shutil
import subprocess
import sys
import time

PROGRESS = re.compile(r"^\[\d+/\d+\] ")
SECONDS = 20


def main():
    if len(sys.argv) < 3 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    is_terminal = sys.stderr.isatty()
    printed = time.monotonic()
    with open(sys.argv[1], "ab", buffering=0) as log:
        command = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for line in command.stdout:
            log.write(line)
            text = line.decode(errors="replace").rstrip()
            if not PROGRESS.match(text):
                continue
            if is_terminal:
                width = shutil.get_terminal_size().columns - 1
                sys.stderr.write("\r\033[K" + text[:width])
                sys.stderr.flush()
            elif time.monotonic() - printed >= SECONDS:
                printed = time.monotonic()
                print(text, file=sys.stderr, flush=True)
        code = command.wait()
    if is_terminal:
        sys.stderr.write("\r\033[K")
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
