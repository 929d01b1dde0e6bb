#!/usr/bin/env python3
"""Runs what README.md and docs/*.md show, and compares what is printed.

    ```console          commands behind `$ `, run by bash in a folder of the page's own, and what they print (standard output
    $ epweave ..        and error); a line `...` stands for any lines. Exit codes other than 0 are shown: `$ cmd; echo $?`
    ```
    ```console TEST     not run here: scripts/dev/TEST runs it (with PyTorch, say), and compares with `shown(PAGE, COMMAND)`
    ```sh               not run (it needs PyTorch, a cluster, or more than a few seconds): the commands and options of the
    epweave ..          programs and the scripts that it names must exist
    ```

A command behind `$ ` stands in one of these, so that what a page says is printed is printed.

The folder holds links to testdata/ and scripts/; $PATH begins with the programs' folder. --update writes what was printed.
Exit codes: 0 all as shown, 1 some not, 2 usage.
"""
import argparse
import difflib
import functools
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(console|sh)(?: ([\w.]+))?\n(.*?)^```$", re.S | re.M)
PROGRAMS = ("epweave", "epweave-replay")


def split_steps(block):
    """[(command, expected output)] of a console block."""
    steps = []
    for line in block.splitlines(keepends=True):
        if line.startswith("$ "):
            steps.append([line[2:].rstrip("\n"), ""])
        elif not steps:
            raise ValueError(f"output before the first command: {line!r}")
        elif steps[-1][0].endswith("\\"):
            steps[-1][0] += "\n" + line.rstrip("\n")
        else:
            steps[-1][1] += line
    return steps


def agrees(expected, printed):
    pattern = "".join(r"(?:.*\n)*?" if line == "...\n" else re.escape(line)
                      for line in expected.splitlines(keepends=True))
    return re.fullmatch(pattern, printed) is not None


def shown(page, command):
    """What `page` says that `command` prints, for the test that its block names."""
    outputs = [output for _, test, content in FENCE.findall((ROOT / page).read_text()) if test
               for shown_command, output in split_steps(content) if shown_command == command]
    if len(outputs) != 1:
        raise ValueError(f"{page}: {len(outputs)} blocks of a test show `{command}`")
    return outputs[0]


class Page:
    def __init__(self, path, programs):
        self.path, self.programs, self.failures = path, programs, []

    def fail(self, command, message):
        self.failures.append(f"{self.path.relative_to(ROOT)}: {command}\n{message}")

    def run(self, update):
        text = self.path.read_text()
        with tempfile.TemporaryDirectory() as folder:
            for name in ("testdata", "scripts"):
                os.symlink(ROOT / name, pathlib.Path(folder) / name)
            new = FENCE.sub(lambda found: self.block(found, folder), text)
        for command in re.findall(r"^(?:    |\t)\$ (.*)", text, re.M):
            self.fail(command, "  stands in an indented block, which no test runs: ```console or ```sh\n")
        if update and new != text:
            self.path.write_text(new)

    def block(self, found, folder):
        kind, test, content = found.groups()
        if kind == "sh":
            self.check_names(content)
            return found[0]
        if test:
            self.check_test(test, split_steps(content))
            return found[0]
        out = ""
        for command, expected in split_steps(content):
            result = subprocess.run(["bash", "-c", command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    text=True, timeout=60, check=False,
                                    env=os.environ | {"PATH": f"{self.programs}:{os.environ['PATH']}", "NO_COLOR": "1"})
            printed = result.stdout
            if result.returncode != 0:
                self.fail(command, f"  exit code {result.returncode}\n{printed}")
            if agrees(expected, printed):
                printed = expected
            else:
                difference = difflib.unified_diff(expected.splitlines(), printed.splitlines(), "shown", "printed", lineterm="")
                self.fail(command, "".join(f"  {line}\n" for line in difference))
            out += f"$ {command}\n{printed}"
        return f"```console\n{out}```"

    def check_test(self, test, steps):
        path = ROOT / "scripts/dev" / test
        text = path.read_text() if path.exists() else ""
        for command, _ in steps:
            if f'shown("{self.path.relative_to(ROOT)}", "{command}")' not in text:
                self.fail(command, f"  scripts/dev/{test} does not compare what it prints\n")

    def check_names(self, content):
        for line in content.replace("\\\n", " ").splitlines():
            for script in re.findall(r"(?<![\w/])scripts/[\w/.-]+", line):
                if not (ROOT / script).exists():
                    self.fail(line, f"  there is no {script}\n")
            words = shlex.split(line, comments=True)
            words = words[:next((i for i, word in enumerate(words) if word[0] in "|>"), None)]  # of the first command
            if not words or pathlib.Path(words[0]).name not in PROGRAMS or len(words) < 2:
                continue
            known = help_words(self.programs, pathlib.Path(words[0]).name, words[1])
            for word in words[2:words.index("--") if "--" in words else None]:
                if word.startswith("-") and word != "-" and word.split("=")[0] not in known:
                    self.fail(line, f"  {words[0]} {words[1]} has no {word}\n")


@functools.cache
def help_words(programs, program, command):
    result = subprocess.run([f"{programs}/{program}", command, "--help"], capture_output=True, text=True, check=False)
    return set(re.split(r"[\s,\[\]]+", result.stdout)) if result.returncode == 0 else set()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default=str(ROOT / "build/release/bin"), help="folder of the programs (%(default)s)")
    parser.add_argument("--update", action="store_true", help="write what was printed into the pages; review the diff")
    parser.add_argument("pages", nargs="*", type=pathlib.Path, help="README.md and docs/*.md where none is given")
    options = parser.parse_args()
    if not os.access(f"{options.programs}/epweave", os.X_OK):
        parser.error(f"{options.programs} has no epweave: build it, or name the folder with --programs")
    pages = [Page(path.resolve(), os.path.abspath(options.programs))
             for path in options.pages or [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]]
    for page in pages:
        page.run(options.update)
    failures = [failure for page in pages for failure in page.failures]
    print("\n".join(failures), end="")
    print(f"docs: {len(pages)} pages, {len(failures)} commands are not as shown")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
