#!/usr/bin/env python3
"""Runs what README.md and docs/*.md show, and compares what is printed.

    ```console          commands behind `$ `, run by bash in a folder of the page's own, and what they print (standard output
    $ epweave ..        and error); a line `...` stands for any lines. Exit codes other than 0 are shown: `$ cmd; echo $?`
    ```
    ```console TEST     not run here: scripts/dev/TEST runs it (with PyTorch, say), and compares with `shown(PAGE, COMMAND)`
    ```sh               each line is run, and what it prints is not looked at: it ends with 0, or as ENDS says. Names that stand
    epweave ..          for the reader's files (IN, OUT, G.epw, ..) are small graphs (`reader_files`); [..] is left out. What
    ```                 NOT_RUN matches cannot be run here: its programs, commands, options and scripts must exist

        epweave ..      an indented line that begins with a program, a script or Python goes the way of a line of ```sh

A command behind `$ ` stands in one of the first two, so that what a page says is printed is printed.

The folder holds links to testdata/ and scripts/; $PATH begins with the programs' folder. --update writes what was printed.
Exit codes: 0 all as shown, 1 some not, 2 usage.
"""
import argparse
import atexit
import difflib
import functools
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(console|sh)(?: ([\w.]+))?\n(.*?)^```$", re.S | re.M)
PROGRAMS = ("epweave", "epweave-replay")
INDENTED = re.compile(r"^    +((?:[A-Z_]+='?\S+'? +)*(?:epweave(?! text 1$)|epweave-replay|scripts/\S+|python3?|build/\S+|cmake|pip|torchrun|trace_torchtitan\.py) .*"
                      r"|[A-Z]=\S+$|scripts/\S+)", re.M)
ASSIGNED = re.compile(r"^[A-Z]=\S+$")

# What is not run, and why; the first row that matches counts.
NOT_RUN = (
    (r"--device|bench_replay|gpu_test", "needs a GPU, or the emulated one for minutes: `replay devices`, scripts/gpu_test.sh"),
    (r"torchrun|launch_examples|--transport nccl", "needs a launcher and a GPU for each rank"),
    (r"^pip |python3 -m venv|^cmake|scripts/(quickstart|test|build)\.sh", "installs or builds: .ci/run, package_test.py --wheel"),
    (r"python -m epweave|trace_torchtitan|train_entry|train_artifact", "needs PyTorch: scripts/test.sh --with-torch"),
    (r"astra_sim\.py|count_chunks", "needs what is not in the repository: a build of ASTRA-sim, a folder of dumps"),
    (r"check_wrong_rewrites|check_row_programs|check_random_graphs|compare_test|mutate_kernels|fuzz_targets|compare_eager",
     "runs for minutes: .ci/run and scripts/dev/nightly.sh run it, or smaller"),
    (r"found/before", "follows a bisect that finds something: cli_test.py"),
    (r"--inputs checkpoint", "takes two files of the reader: replay_cli_test.py"),
    (r"epweave-replay check \$G", "executes a step of whole size twice, for a minute: the tests `replay counts` do"),
)
# Commands that end with another exit code than 0, as the page says.
ENDS = (
    (r"^epweave diff (?!.*\|)", 1),  # the graphs differ
    (r"^epweave rewrite --reproducer ", 4),  # as what it was made of
    (r"^epweave bisect ", 1),  # the command fails nowhere
)
STANDS_FOR = {"NODE": "all_to_all_single_1"}


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


@functools.cache
def reader_files(programs):
    """A folder of the graphs and other files that pages call the reader's."""
    made = pathlib.Path(tempfile.mkdtemp(prefix="epweave-docs-"))
    atexit.register(shutil.rmtree, made)
    make_files(programs, made)
    return made


def make_files(programs, folder):
    def run(*words, code=0):
        done = subprocess.run([f"{programs}/{words[0]}", *words[1:]], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != code:
            raise SystemExit(f"check_docs: {shlex.join(words)}: exit code {done.returncode}\n{done.stderr}")
        return done.stdout

    graphs = ROOT / "testdata/graphs"
    whole = str(graphs / "dsv3_debug_ep2.1b_remat.epw.gz")
    run("epweave", "resize", whole, "--set", "tokens=64", "-o", "IN", "-q")
    run("epweave", "rewrite", "IN", "--preset", "ep-overlap", "-o", "OUT", "-q")
    run("epweave", "resize", whole, "--set", "tokens=32", "--set", "layers=2", "-o", "G", "-q")
    run("epweave", "rewrite", "G", "--preset", "ep-overlap", "-o", "B", "-q")
    run("epweave", "rewrite", "OUT", "--preset", "ep-overlap", "-o", "none", "--keep-reproducer", "FAILED.epw", code=4)
    run("epweave", "rewrite", "G", "-p", "chunk", "-o", "chunked.epw", "-q")
    run("epweave", "specialize", str(ROOT / "testdata/general/dsv3_debug_fsdp2_tp2_ep4_L2_static.epw.gz"), "--all", "-o", "of_ranks")
    run("epweave-replay", "run", "G", "--warm-up", "0", "--repeat", "1", "--costs", "costs.json", "--timeline", "timeline.json",
        "--save-inputs", "in.safetensors")
    (folder / "OLD.json").write_text(run("epweave", "simulate", "OUT", "--json"))
    (folder / "flex.json").write_text("{}")
    (folder / "CMD").write_text("#!/bin/sh\n")
    (folder / "CMD").chmod(0o755)
    for name, of in {"IN.epw": "IN", "G.epw": "IN", "OLD.epw": "IN", "step.epw": "IN", "671b.epw": "IN", "A": "G", "C": "G",
                     "OUT.epw": "OUT", "NEW.epw": "OUT", "overlapped.epw": "OUT", "eager.epw": graphs / "dsv3_debug_ep2_eagerchunk.1b_remat.epw.gz",
                     **{f"{name}{rank}{end}": f"of_ranks/rank-{rank:05}.epw"
                        for rank in range(4) for name, end in (("r", ".epw"), ("rank", ".epw"), ("R", ""))}}.items():
        (folder / name).symlink_to(of)


def lines_of(content):
    """The commands of lines, each joined with those that it goes on in, without what may be left out ([..])."""
    return [re.sub(r" \[-[^]]*\]", "", line.strip()) for line in content.replace("\\\n", " ").splitlines() if line.strip()]


class Page:
    def __init__(self, path, programs):
        self.path, self.programs, self.failures, self.has_reader_files = path, programs, [], False

    def fail(self, command, message):
        self.failures.append(f"{self.path.relative_to(ROOT)}: {command}\n{message}")

    def run(self, update):
        text = self.path.read_text()
        with tempfile.TemporaryDirectory() as folder:
            for name in ("testdata", "scripts"):
                os.symlink(ROOT / name, pathlib.Path(folder) / name)
            new = FENCE.sub(lambda found: self.block(found, folder), text)
            indented = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M).replace("\\\n", " ")
            self.run_lines([line for found in INDENTED.finditer(indented) for line in lines_of(found[1])], folder)
        for command in re.findall(r"^(?:    |\t)\$ (.*)", text, re.M):
            self.fail(command, "  stands in an indented block, which no test runs: ```console or ```sh\n")
        if update and new != text:
            self.path.write_text(new)

    def block(self, found, folder):
        kind, test, content = found.groups()
        if kind == "sh":
            self.run_lines(lines_of(content), folder)
            return found[0]
        if test:
            self.check_test(test, split_steps(content))
            return found[0]
        out = ""
        for command, expected in split_steps(content):
            result = self.bash(command, folder)
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

    def bash(self, command, folder):
        return subprocess.run(["bash", "-c", command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=300, check=False,
                              env=os.environ | {"PATH": f"{self.programs}:{folder}:{os.environ['PATH']}", "NO_COLOR": "1",
                                                "GITHUB_STEP_SUMMARY": "summary.md"})

    def run_lines(self, lines, folder):
        """Runs what can be run, in the folder with the reader's files; of the rest the names are checked."""
        assigned = ""
        for line in lines:
            if ASSIGNED.match(line):
                assigned += line + "; "
                continue
            self.check_names(line)
            if any(re.search(pattern, line) for pattern, _ in NOT_RUN):
                continue
            if not self.has_reader_files:
                shutil.copytree(reader_files(self.programs), folder, dirs_exist_ok=True)
                self.has_reader_files = True
            ends = next((code for pattern, code in ENDS if re.search(pattern, line)), 0)
            command = assigned + re.sub(r"\b(" + "|".join(STANDS_FOR) + r")\b", lambda found: STANDS_FOR[found[0]], line)
            result = self.bash(command, folder)
            if result.returncode != ends:
                self.fail(line, f"  exit code {result.returncode}, not {ends}\n{result.stdout[-1500:]}")

    def check_test(self, test, steps):
        path = ROOT / "scripts/dev" / test
        text = path.read_text() if path.exists() else ""
        for command, _ in steps:
            if f'shown("{self.path.relative_to(ROOT)}", "{command}")' not in text:
                self.fail(command, f"  scripts/dev/{test} does not compare what it prints\n")

    def check_names(self, content):
        for line in re.split(r"\n| && ", content):
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
