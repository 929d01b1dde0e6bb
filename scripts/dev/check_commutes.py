#!/usr/bin/env python3
"""A pass and then specialize gives, node by node, what specialize and then the pass give, for every pass and preset.

    check_commutes.py [--epweave PROGRAM] [--rank R | --all-ranks] [--only REGEX] [--keep DIR] GRAPH..

GRAPH holds for all ranks, but for numbers of one rank that `generalize --repair` replaces. The passes and presets are those
that `epweave passes` lists, each with its defaults and with each other choice of each option; in front of a pass stands what
gives it something to do. Each call is tried on one of the ranks behind the first, the next call on the next, or on
--rank alone, or on every rank. Names of nodes and symbols, metadata and provenance do not count. Prints what differs, with its first
node, what is refused in one of the two orders only, and passes that ran on no graph.

Exit codes: 0 all are the same, 1 some are not, 2 usage.
"""
from __future__ import annotations

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence

# What follows these words of a node's line is metadata and provenance.
REST = re.compile(r" (?:example=|py_type=|custom\{|no_custom|meta\{|src=|from\(|unknown=)")
CALLED = re.compile(r"%[\w.]+")
SYMBOL = re.compile(r"\bu\d+\b")
SUM = re.compile(r"[\w*]+(?: \+ [\w*]+)+")
NORMAL = "dce,canonicalize,dedup-unshard"
PREPARATIONS = {
    "overlap-ep": f"{NORMAL},chunk,isolate-ep-pg,dce", "recompute": f"{NORMAL},memory-policy",
    "cpu-offload": f"{NORMAL},memory-policy{{policy=sac-and-offload}},recompute",
    "dce": "", "canonicalize": "", "dedup-unshard": "",
}
NOT_ASKED = {"specialize"}
# What more there is to a choice, by knobs that `epweave passes` does not list.
BESIDE = {"inductor": [f",knobs=[collective_bucketing=true,bucket_mode={mode}]"
                       for mode in ("default", "custom_ops", "custom_ops_multidtype", "coalesced")]}


def list_calls(row: dict) -> list[str]:
    """NAME, and NAME{OPTION=CHOICE} for each other choice."""
    calls = [row["name"]]
    for option in row["options"]:
        if option["kind"] != "choice" or option["name"] == "effort":  # how long it searches
            continue
        for choice in option["choices"]:
            beside = ",recompute-ms=1000" if choice == "budget" else ""
            if row["name"] == "bucket" and option["name"] == "unpriced":
                beside = ",plan=overlap"
            if choice != option["default"]:
                calls += [f"{row['name']}{{{option['name']}={choice}{more}}}" for more in (beside, *BESIDE.get(choice, ()))]
    return calls


class StepReader:
    """Rows of groups and symbols, and nodes, with places in the step for names of nodes and symbols."""

    def __init__(self, text: str):
        self.nodes: list[str] = []
        self.symbols: dict[str, str] = {}
        self.places: dict[str, str] = {}
        table = []
        for line in text.splitlines():
            if line.startswith(("group ", "symbol ")):
                table.append(line)
            elif line == "graph" or line.startswith("graph "):
                self.nodes.append("graph")
                self.places = {}
            elif line.startswith("  "):
                self.read_node(line)
        self.table = sorted(self.rename_symbols(line) for line in table)

    def read_node(self, line: str) -> None:
        called = REST.split(line, maxsplit=1)[0]
        name = CALLED.match(called.strip())
        if name:
            self.places[name.group()] = f"%{len(self.nodes)}"
        called = re.sub(r" of=%[\w.]+", "", called)  # a name before a pass
        for found in re.findall(r"bind\((u\d+)", called):
            self.symbols.setdefault(found, f"v{len(self.symbols)}")
        called = CALLED.sub(lambda found: self.places.get(found.group(), found.group()), called)
        self.nodes.append(self.rename_symbols(called).strip())

    def rename_symbols(self, text: str) -> str:
        """Sums name their symbols in order of these names."""
        text = SYMBOL.sub(lambda found: self.symbols.get(found.group(), found.group()), text)
        return SUM.sub(lambda found: " + ".join(sorted(found.group().split(" + "))), text)


def find_difference(later: str, first: str) -> str:
    """The first that is not the same."""
    a, b = StepReader(later), StepReader(first)
    for i, (x, y) in enumerate(zip(a.nodes, b.nodes)):
        if x != y:
            return f"node {i} of {len(a.nodes)} and {len(b.nodes)}:\n    behind {x}\n    before {y}"
    if len(a.nodes) != len(b.nodes):
        return f"{len(a.nodes)} and {len(b.nodes)} nodes"
    rows = sorted(set(a.table) ^ set(b.table))
    return f"only on one side: {rows[0]}" if rows else ""


class Checker:
    def __init__(self, epweave: str, folder: pathlib.Path):
        self.epweave, self.folder = epweave, folder

    def run(self, *words) -> subprocess.CompletedProcess:
        return subprocess.run([self.epweave, *map(str, words)], capture_output=True, text=True, check=False)

    def rewrite(self, graph, pipelines: list[list[str]], out: pathlib.Path) -> str:
        """What refuses, or nothing."""
        current = graph
        for words in pipelines:
            done = self.run("rewrite", current, *words, "--verify", "off", "-q", "-o", out)
            if done.returncode:
                found = re.search(r"\[([\w.-]+)\]", done.stderr)
                return found.group(1) if found and done.returncode == 4 else f"exit {done.returncode}: {done.stderr}"
            current = out  # which is read before it is written
        return ""

    def prepare(self, graph) -> None:
        """The graph, and what it is on each rank."""
        self.general, ranks = self.folder / "general.epw", self.folder / f"{graph.name}.ranks"
        for words in (["generalize", graph, "--repair", "-o", self.general],
                      ["specialize", self.general, "--all", "-o", ranks]):
            done = self.run(*words, "-q")
            if done.returncode:
                raise SystemExit(f"{graph}: {done.stderr}")
        self.own = sorted(ranks.iterdir())

    def compare(self, words: list[str], ranks: Sequence[int]) -> tuple[bool, list[str]]:
        """Whether it ran in both orders, and what differs."""
        changed, later, first = (self.folder / name for name in ("changed.epw", "later.txt", "first.txt"))
        refused, found = self.rewrite(self.general, [words], changed), []
        for rank in ranks:
            behind = refused or self.rewrite(changed, [["-p", f"specialize{{rank={rank}}}"]], later)
            before = self.rewrite(self.own[rank], [words], first)
            what = (f"refused behind: {behind or 'no'}; before: {before or 'no'}" if behind != before else
                    find_difference(later.read_text(), first.read_text()) if not behind else "")
            found += [f"rank {rank}: {what}"] if what else []
        return not refused, found


def list_wanted(known: dict, only: str) -> list[tuple[str, str, list[str]]]:
    """Names, calls, and the words with which `rewrite` makes them."""
    wanted = []
    for row in known["passes"]:
        if row["name"] in NOT_ASKED:
            continue
        before = PREPARATIONS.get(row["name"], NORMAL)
        wanted += [(row["name"], call, ["-p", f"{before},{call}" if before else call]) for call in list_calls(row)]
    for row in known["presets"]:
        wanted += [(row["name"], call, ["--preset", call]) for call in list_calls(row)]
    return [row for row in wanted if re.search(only, row[1])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", type=pathlib.Path, metavar="GRAPH")
    parser.add_argument("--epweave", default="epweave")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--all-ranks", action="store_true")
    parser.add_argument("--only", default="", help="a pattern of calls")
    parser.add_argument("--keep", type=pathlib.Path)
    options = parser.parse_args()
    known = json.loads(subprocess.run([options.epweave, "passes", "--json"], capture_output=True, text=True,
                                      check=True).stdout)
    wanted = list_wanted(known, options.only)
    failed, idle = 0, {name for name, _, _ in wanted}
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for graph in options.graphs:
            checker, ran = Checker(options.epweave, folder), 0
            checker.prepare(graph)
            world = len(checker.own)
            turns = list(range(1, world)) if options.rank is None else [options.rank]
            for i, (name, call, words) in enumerate(wanted):
                has_run, found = checker.compare(words, range(world) if options.all_ranks else [turns[i % len(turns)]])
                ran += has_run
                idle -= {name} if has_run else set()
                failed += bool(found)
                for what in found:
                    print(f"{graph.name}: {call}: {what}", flush=True)
            tried = "all" if options.all_ranks else ", ".join(map(str, turns))
            print(f"{graph.name}: {ran} of {len(wanted)} ran, ranks {tried}", flush=True)
    if idle:
        print(f"ran on no graph: {', '.join(sorted(idle))}")
    return 1 if failed or idle else 0


if __name__ == "__main__":
    sys.exit(main())
