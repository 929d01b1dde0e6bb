"""The programs `epweave` and `epweave-replay`: where they are, and running them."""
from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

from .errors import (FACTS, DeclinedError, DeviceError, EpweaveError, GraphFileError, InternalError, RunError,
                     UsageError, full_text)

_ERRORS = {"usage": UsageError, "invalid-input": GraphFileError, "declined": DeclinedError,
           "no-device": DeviceError, "internal": InternalError, "run": RunError, "collective": RunError,
           "trouble": GraphFileError, "device-lost": RunError}
_SCHEMA = 1  # of the programs' JSON that this package reads
_VARIABLES = {"epweave": "EPWEAVE", "epweave-replay": "EPWEAVE_REPLAY"}
_HERE = pathlib.Path(__file__).resolve().parent
_CHECKOUT_BUILD = _HERE.parents[1] / "build" / "release" / "bin"


def find_program(name: str) -> str:
    """The path of a program: from the environment (EPWEAVE, EPWEAVE_REPLAY), the package, the checkout, or PATH."""
    named = os.environ.get(_VARIABLES[name])
    if named:
        if not os.access(named, os.X_OK):
            raise UsageError(f"{_VARIABLES[name]} names {named}, which cannot be executed",
                             remedy=f"unset it, or let it name the program {name}")
        return named
    for place in (_HERE / "bin" / name, _CHECKOUT_BUILD / name):
        if os.access(place, os.X_OK):
            return str(place)
    found = shutil.which(name)
    # The package installs a command of the same name that calls this function.
    if found and pathlib.Path(found).read_bytes()[:2] != b"#!":
        return found
    raise UsageError(f"the program {name} is not there", remedy="install the package with `pip install .`, build it"
                     f" with scripts/build.sh, or set {_VARIABLES[name]} to its path")


def error_of(report: dict, reproducer: str | None = None) -> EpweaveError:
    """The exception for the "error" of a program's JSON report."""
    facts = {name: report.get(name) for name in FACTS}
    message = report["message"].split("\n  remedy: ")[0]  # which is a fact of its own
    if not facts["remedy"]:
        message, expected, rest = message.partition("\n  expected ")
        facts["remedy"] = f"expected {rest}" if expected else None
    if facts["remedy"]:
        facts["remedy"] = _in_python(facts["remedy"])
    return _ERRORS.get(report.get("kind"), EpweaveError)(_in_python(message), reproducer=reproducer, **facts)


# Options whose values are words.
_CHOICES = {"math", "device", "policy", "transport", "direction", "data", "bounds", "unpriced", "preset", "verify"}


def _in_python(text: str) -> str:
    """What a program says of its options, as arguments: `seed=` for --seed, `ranks=2` for --ranks 2."""
    def argument(found: re.Match) -> str:
        option, value = found[1] or "pipeline", found[2]
        name = "plan" if option == "print-plan" else option.replace("-", "_")
        if name == "plan" or found.string.startswith(":", found.end()):
            return name if not value else f"{name}={value}"
        is_choice = option in _CHOICES or found[1] is None
        if value and not is_choice and value.islower() and value.isalpha():  # the next word of the sentence
            return f"{name}= {value}"
        return f"{name}={repr(value) if is_choice and value else value or ''}"

    # Of a command that is written out, the options are its own.
    pieces = re.split(r"(`epweave[^`]*`|\bepweave(?:-replay)? [a-z]+ [^;,:]*)", text)
    option = re.compile(r"(?<![\w-])(?:--([a-z][a-z-]*)|-p)(?: ((?<=-p )[a-z,-]+|[a-z-]+(?:\{[^}]*\})?|[A-Z]+\b|\d[\w.]*))?")
    return "".join(piece if i % 2 else option.sub(argument, piece) for i, piece in enumerate(pieces))


def _error_of_signal(program: str, number: int, said: str) -> EpweaveError:
    """A program that was ended from outside did nothing wrong; one that crashed has a bug."""
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    message = f"{program} was ended by {name}" + (f": {said}" if said else "")
    if number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        remedy = "the kernel does that for want of memory: give it more, or a smaller graph" if number == signal.SIGKILL else None
        return RunError(message, remedy=remedy)
    return InternalError(message)


_looks: list[Callable[[], None]] = []  # called now and then while a program runs
_limits: list[tuple[float, str]] = []  # seconds, and the remedy; the last counts


@contextlib.contextmanager
def looking(look: Callable[[], None]) -> Iterator[None]:
    """While a program runs within, `look` is called about each second: what it raises ends the program, too."""
    _looks.append(look)
    try:
        yield
    finally:
        _looks.remove(look)


@contextlib.contextmanager
def limiting(seconds: float, remedy: str) -> Iterator[None]:
    """A program that runs within and is given no `timeout` of its own is ended after `seconds`."""
    _limits.append((seconds, remedy))
    try:
        yield
    finally:
        _limits.pop()


def _run_watched(command: list[str], timeout: float | None) -> subprocess.CompletedProcess:
    """subprocess.run, but for what `looking` asks for."""
    deadline = None if timeout is None else time.monotonic() + timeout
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            while True:
                left = None if deadline is None else deadline - time.monotonic()
                try:
                    out, err = process.communicate(timeout=left if not _looks else 1.0 if left is None else min(left, 1.0))
                    return subprocess.CompletedProcess(command, process.returncode, out, err)
                except subprocess.TimeoutExpired:
                    if deadline is not None and time.monotonic() >= deadline:
                        raise
                for look in _looks:
                    look()
        except BaseException:
            process.kill()
            raise


def run(name: str, *words: str, timeout: float | None = None, accept: tuple[int, ...] = (0,)) -> tuple[dict, str]:
    """Runs a program with --json: its report and what it said on standard error.

    Raises the exception that its error report says for exit codes other than `accept`.
    """
    for word in words:
        require_text(f"what `{name} {words[0]}` is told", word, "give a text, a number or a path")
    if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
        raise UsageError(f"timeout is a number of seconds, and {timeout!r} was given", remedy="give one above 0, or None")
    limit = (timeout, "give more time, or a smaller graph") if timeout or not _limits else _limits[-1]
    command = [find_program(name), *words, "--json"]
    try:
        done = _run_watched(command, limit[0])
    except subprocess.TimeoutExpired:
        raise RunError(f"{name} {words[0]} took more than {limit[0]:g} seconds", remedy=limit[1]) from None
    said = done.stderr.decode(errors="replace")
    if done.returncode < 0:
        raise _error_of_signal(f"{name} {words[0]}", -done.returncode, said.strip())
    try:
        report = json.loads(done.stdout) if done.stdout.strip() else {}
    except ValueError:
        raise InternalError(f"{name} {words[0]} gave no JSON (exit code {done.returncode}): {said.strip()}") from None
    if done.returncode not in accept or "error" in report:
        error = report.get("error") or {"kind": "internal", "message":
                                        f"{name} ended with exit code {done.returncode}: {said.strip()}"}
        kept = re.search(r"^reproducer: (.+)$", said, re.MULTILINE)
        raise error_of(error, kept and kept[1])
    if report and report.get("schema") != _SCHEMA:
        raise UsageError(f"{command[0]} writes JSON of schema {report.get('schema')}, and this package reads {_SCHEMA}",
                         remedy=f"unset {_VARIABLES[name]}, or install a program and a package of one version")
    return report, said


def require_text(what: str, value, remedy: str) -> str:
    """The value, if it is a text. Raises UsageError, with `what` it was given for."""
    if isinstance(value, str):
        return value
    raise UsageError(f"{what} is a text, and {type(value).__name__} was given: {value!r}", remedy=remedy)


def path_of(value) -> str:
    """The name of a file that the caller gave: a text or a path. Raises UsageError for anything else."""
    if isinstance(value, os.PathLike) and isinstance(os.fspath(value), str):
        return os.fspath(value)
    return require_text("the name of a graph file", value, "give its path; `.path` of a Result, `.export(path)` of a Step")


def write_graph(graph, path: str, **facts) -> None:
    """Writes a torch.fx.GraphModule, a torch.export.ExportedProgram or an `epweave.Step` to `path`."""
    if hasattr(graph, "trained"):  # a Step, which knows its facts
        graph.export(path)
        return
    from .exporter import export
    export(graph, path, **facts)


@contextlib.contextmanager
def graph_file(graph, **facts):
    """The path of a graph file: `graph` itself where it is a path, else a temporary file that holds it.

    `graph` is a path, an `epweave.Result`, or what `write_graph` takes; `facts` are those of `export`.
    """
    if isinstance(graph, (str, os.PathLike)):
        yield os.fspath(graph)
        return
    path = getattr(graph, "path", None)
    if isinstance(path, str):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="epweave-") as folder:
        path = os.path.join(folder, "graph.epw")
        write_graph(graph, path, **facts)
        try:
            yield path
        except EpweaveError as error:
            raise error.naming(path, "the graph") from None


@functools.cache
def package_version() -> str:
    """The version of this package: of a checkout what its CMakeLists.txt says, else pip's, else that of the program."""
    project = _HERE.parents[1] / "CMakeLists.txt"
    said = re.search(r"project\(epweave VERSION ([0-9.]+)", project.read_text(encoding="utf-8")) if project.is_file() else None
    if said:
        return said[1]
    try:
        return importlib.metadata.version("epweave")
    except importlib.metadata.PackageNotFoundError:  # installed by CMake or a Debian package, beside the programs
        return versions().split()[1]


@functools.cache
def versions() -> str:
    """What `epweave --version` says."""
    return subprocess.run([find_program("epweave"), "--version"], capture_output=True, text=True,
                          check=True).stdout.strip()


def command(name: str) -> int:
    """Becomes the program: the commands that the package installs."""
    try:
        path = find_program(name)
    except EpweaveError as error:
        print(f"{name}: error: {full_text(error)}", file=sys.stderr)
        return 2
    os.execv(path, [path, *sys.argv[1:]])


def main_epweave() -> int:
    """The installed command `epweave`."""
    return command("epweave")


def main_replay() -> int:
    """The installed command `epweave-replay`."""
    return command("epweave-replay")
