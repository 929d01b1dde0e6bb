"""epweave-replay as its tests call it. EPWEAVE_REPLAY names the program."""
import os
import subprocess
import sys

REPLAY = os.environ["EPWEAVE_REPLAY"]


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
