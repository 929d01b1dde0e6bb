"""epweave-replay as its tests call it: the program $EPWEAVE_REPLAY, else that of build/release."""
import os
import pathlib
import subprocess
import sys

REPLAY = os.environ.get("EPWEAVE_REPLAY") or str(pathlib.Path(__file__).resolve().parents[2] / "build/release/bin/epweave-replay")


def run(*arguments, **variables):
    """Exit code, standard output, standard error."""
    result = subprocess.run(
        [REPLAY, *map(str, arguments)], capture_output=True, text=True, check=False, env={**os.environ, **variables}
    )
    return result.returncode, result.stdout, result.stderr


def expect(condition, what):
    if not condition:
        print(what, file=sys.stderr)
        sys.exit(1)
