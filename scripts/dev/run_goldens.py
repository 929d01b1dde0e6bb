#!/usr/bin/env python3
"""Run golden tests: each file of testdata/*/*.test holds its commands, their input and the whole expected result.

    # What the test shows, in comments.
    RUN: epweave rewrite input.txt -p canonicalize -o - --to text
    === input.txt ===
    epweave text 1
    ...
    === stdout ===
    ...
    === stderr ===      (left out where empty)
    ...
    === exit 4 ===      (left out where 0)

The command runs without a shell in a new folder that holds the inputs, so that no path of this machine can
show up in the result. Of several lines RUN, each runs in that folder behind the one before, which exits with 0,
or as `RUN 4: command` says; what all of them print is the result. Versions and SHA-256 hashes are compared as VERSION and SHA256.

Every test runs twice and must give the same bytes. A result of the last command that is a graph in text form is also taken
through text -> binary -> JSON -> text and must come back the same, and `epweave verify` must accept it; a
test whose result is broken on purpose says so: `NOVERIFY: reason`.

--update (or EPWEAVE_UPDATE_GOLDENS=1) writes what the command gave as the new expectation; review the diff.
--once (or EPWEAVE_GOLDENS_ONCE=1) runs each command once and leaves the other forms alone: for a slow build, when a
fast one has done both.
Exit codes: 0 all passed, 1 some failed, 2 usage.
"""

import argparse
import difflib
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from typing import NamedTuple

SECTION = re.compile(r"=== (\S+?|exit \d+) ===")
COMMAND = re.compile(r"RUN(?: (\d+))?:(.*)")
NO_NEWLINE = "\\ no newline at the end\n"
NORMALISED = [
    (re.compile(rb"epweave \d+\.\d+\.\d+"), b"epweave VERSION"),
    (re.compile(rb"\b[0-9a-f]{64}\b"), b"SHA256"),
]


class BadTest(Exception):
    """The test file itself is wrong."""


@dataclass
class Golden:
    header: str
    commands: list  # exit code and words of each; what the last exits with is `exit`
    skip_verify: bool
    inputs: dict = field(default_factory=dict)
    stdout: str = ""
    stderr: str = ""
    exit: int = 0

    def text(self):
        parts = [self.header]
        parts += [f"=== {name} ===\n{content}" for name, content in self.inputs.items()]
        parts.append(f"=== stdout ===\n{self.stdout}")
        if self.stderr:
            parts.append(f"=== stderr ===\n{self.stderr}")
        if self.exit:
            parts.append(f"=== exit {self.exit} ===\n")
        return "".join(parts)


class Result(NamedTuple):
    """What all commands of a test printed, and how the last ended."""

    stdout: bytes
    stderr: bytes
    exit: int
    last: bytes  # what it printed


def parse(text):
    header, sections = [], {}
    lines = header
    for line in text.splitlines(keepends=True):
        if match := SECTION.fullmatch(line.rstrip("\n")):
            if match[1] in sections:
                raise BadTest(f"section '{match[1]}' comes twice")
            lines = sections[match[1]] = []
        else:
            lines.append(line)
    commands = [(int(match[1] or 0), shlex.split(match[2])) for match in map(COMMAND.match, header) if match]
    if not commands:
        raise BadTest("has no line 'RUN: command'")
    if commands[-1][0]:
        raise BadTest("how the last command ends stands behind what it prints: === exit N ===")
    golden = Golden("".join(header), commands, any(x.startswith("NOVERIFY:") for x in header))
    if any(words[:1] not in (["epweave"], ["epweave-replay"]) for _, words in commands):
        raise BadTest("a command must be epweave or epweave-replay")
    for name, body in sections.items():
        if name in ("stdout", "stderr"):
            setattr(golden, name, "".join(body))
        elif name.startswith("exit "):
            golden.exit = int(name[5:])
        elif pathlib.PurePath(name).name == name:
            golden.inputs[name] = "".join(body)
        else:
            raise BadTest(f"'{name}' is not a plain file name")
    return golden


def readable(output):
    for pattern, replacement in NORMALISED:
        output = pattern.sub(replacement, output)
    text = output.decode("utf-8", errors="backslashreplace")
    return text if not text or text.endswith("\n") else text + "\n" + NO_NEWLINE


class Runner:
    def __init__(self, epweave, folder):
        self.epweave, self.folder = epweave, pathlib.Path(folder)

    def run(self, *arguments):
        return self.run_program(self.epweave, *arguments)

    def run_all(self, commands):
        done = []
        for i, (wanted, words) in enumerate(commands):
            done.append(self.run_command(*words))
            if i + 1 < len(commands) and done[-1].returncode != wanted:
                raise BadTest(f"{shlex.join(words)}: exit {done[-1].returncode}, expected {wanted}\n"
                              + readable(done[-1].stderr))
        return Result(b"".join(x.stdout for x in done), b"".join(x.stderr for x in done), done[-1].returncode,
                      done[-1].stdout)

    def run_command(self, program, *arguments):
        """A command of either program; epweave-replay lies beside epweave."""
        return self.run_program(pathlib.Path(self.epweave).with_name(program), *arguments)

    def run_program(self, program, *arguments):
        # No locale, colour or terminal of whoever runs the tests.
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "HOME": str(self.folder)}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LD_LIBRARY_PATH"):
            if name in os.environ:
                environment[name] = os.environ[name]
        return subprocess.run([program, *arguments], cwd=self.folder, env=environment, timeout=120,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False)

    def read(self, name):
        return (self.folder / name).read_bytes()

    def check_command(self, *arguments):
        """The trouble with a command that must succeed, or nothing."""
        result = self.run(*arguments)
        if result.returncode == 0:
            return []
        return [f"epweave {shlex.join(arguments)}: exit {result.returncode}\n{readable(result.stderr)}"]

    def check_graph(self, graph, skip_verify):
        """What is wrong with a graph that a command wrote in text form."""
        (self.folder / "result.txt").write_bytes(graph)
        trouble = self.check_command("convert", "result.txt", "result.epw")
        trouble += [] if skip_verify else self.check_command("verify", "result.txt")
        if trouble:
            return trouble
        forms = ["result.epw", "again.txt"]
        # JSON has no place for fields of a newer format.
        if b" unknown=" not in graph and b"\nunknown " not in graph:
            forms = ["result.epw", "result.json", "again.epw", "again.txt"]
        for source, target in zip(forms, forms[1:]):
            trouble += self.check_command("convert", source, target)
        if not trouble and self.read("again.txt") != graph:
            trouble.append(diff("the result", graph.decode(), "after the round trip", self.read("again.txt").decode()))
        if not trouble and "again.epw" in forms and self.read("again.epw") != self.read("result.epw"):
            trouble.append("binary -> JSON -> binary changed the bytes\n")
        return trouble


def diff(name_a, a, name_b, b):
    lines = difflib.unified_diff(a.splitlines(keepends=True), b.splitlines(keepends=True), name_a, name_b)
    return "".join(lines)


def run_golden(path, epweave, update=False, once=False):
    """What is wrong, as printable texts."""
    expected_text = path.read_text(encoding="utf-8")
    golden = parse(expected_text)
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(epweave, folder)
        for name, content in golden.inputs.items():
            (runner.folder / name).write_text(content, encoding="utf-8")
        result = runner.run_all(golden.commands)
        again = result if once else runner.run_all(golden.commands)
        trouble = []
        if result != again:
            trouble.append("a second run gave another result\n"
                           + diff("first", readable(result.stdout), "second", readable(again.stdout)))
        golden.stdout, golden.stderr, golden.exit = readable(result.stdout), readable(result.stderr), result.exit
        if result.last.startswith(b"epweave text") and not once:
            trouble += runner.check_graph(result.last, golden.skip_verify)
    if golden.text() != expected_text:
        if update:
            path.write_text(golden.text(), encoding="utf-8")
        else:
            trouble.append(diff(f"{path} (expected)", expected_text, "got", golden.text()))
    return trouble


def find_tests(paths):
    for path in paths:
        if path.is_dir():
            yield from sorted(path.rglob("*.test"))
        else:
            yield path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epweave", default="build/release/bin/epweave", help="the program (%(default)s)")
    parser.add_argument("--update", action="store_true", help="write the results as the new expectations")
    parser.add_argument("--once", action="store_true", help="run each command once, and nothing on its result")
    parser.add_argument("paths", nargs="+", type=pathlib.Path, help="test files or folders of them")
    options = parser.parse_args()
    update = options.update or os.environ.get("EPWEAVE_UPDATE_GOLDENS") == "1"
    once = options.once or os.environ.get("EPWEAVE_GOLDENS_ONCE") == "1"
    epweave = os.path.abspath(options.epweave)
    if not os.access(epweave, os.X_OK):
        parser.error(f"{options.epweave} is not a program: build it, or name it with --epweave")

    failed = count = 0
    for path in find_tests(options.paths):
        count += 1
        try:
            trouble = run_golden(path, epweave, update, once)
        except (BadTest, UnicodeDecodeError, ValueError, subprocess.TimeoutExpired) as error:
            trouble = [f"{error}\n"]
        if trouble:
            failed += 1
            print(f"FAILED {path}\n" + "".join(trouble), end="")
    if count == 0:
        parser.error("no *.test files there")
    print(f"{count - failed} of {count} golden tests passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
