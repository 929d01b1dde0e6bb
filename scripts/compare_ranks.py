#!/usr/bin/env python3
"""One job traced rank by rank and once for all ranks, side by side: what differs, and whether one graph can stand for all.

    compare_ranks.py [--model llama3] [--dp-replicate 1] [--dp-shard 2] [--tp 2] [--ep 1] [--layers N] [--given R,..] [--all-ranks] [--epweave PROGRAM] [--keep DIR] [--json]

Traces rank 0, a rank of another place along each axis, the last rank (or all ranks), and the rank-agnostic graph, each in a process of
its own (fake process group, no GPU). Then: `generalize` of the traces (of those that --given names; where parameters are cut unevenly, of those that
hold as much as rank 0), `specialize` of its result to each of them and `diff`; the rank-agnostic graph as traced by `verify --ranks`, repaired (`generalize --repair`), specialised and compared
with the traces; `verify --ranks` of the repaired graph; `epweave-replay check` of a rewrite of the general graph; gathers that dedup-unshard and bucket leave, and members of the groups that isolate-ep-pg and reassign-pgs add, both beside those of a rank's own trace; `artifact check`.

Needs torch 2.15 and torchtitan 0.3. Exit codes: 0 all as wanted, 1 something differs, 2 usage, 3 a trace failed.
"""
from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import epweave_fx  # noqa: E402,F401  it knows where the package is
from epweave.errors import UsageError  # noqa: E402
from epweave.programs import find_program  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PIPELINE = "dce,canonicalize,dedup-unshard"
IGNORED = "names,metadata,provenance"


def count_nodes(report: dict) -> int:
    """Nodes that differ, by the report of `epweave diff --json`."""
    return sum(len(graph["nodes"]) for graph in report["graphs"])


class Program:
    """epweave, and how long its calls took."""

    def __init__(self, path: str):
        self.path = path

    def run(self, *words, allowed=(0,)):
        start = time.perf_counter()
        done = subprocess.run([self.path, *map(str, words)], capture_output=True, text=True)
        if done.returncode not in allowed:
            raise RuntimeError(f"epweave {' '.join(map(str, words))}: exit {done.returncode}\n{done.stderr}")
        return done, time.perf_counter() - start

    def same_step(self, a, b) -> bool:
        """Node by node; how the graphs came to be does not count."""
        done, _ = self.run("diff", a, b, "--ignore", IGNORED, "--json", allowed=(0, 1))
        return count_nodes(json.loads(done.stdout)) == 0


def trace(options, folder: pathlib.Path, name: str, *more: str) -> tuple[pathlib.Path | None, str]:
    """The traced graph, or why torchtitan does not give one."""
    out = folder / f"{name}.epw"
    if out.exists():
        return out, ""
    words = [sys.executable, HERE / "trace_torchtitan.py", "--model", options.model,
             "--dp-replicate", options.dp_replicate, "--dp-shard", options.dp_shard, "--tp", options.tp,
             "--ep", options.ep, *(["--layers", options.layers] if options.layers else []), "--static", "-o", out, *more]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message"
    return out, ""


def count_ranks(options) -> int:
    return options.dp_replicate * options.dp_shard * options.tp


def pick_ranks(options) -> list[int]:
    """Rank 0, one of another place along each axis, and the last."""
    world = count_ranks(options)
    wanted = {0, 1, options.tp, options.ep, options.dp_shard * options.tp, world - 1}
    return sorted(rank for rank in wanted if rank < world)


def count_kinds(explained: list[dict]) -> str:
    kinds: dict[str, int] = {}
    for row in explained:
        kinds[row["kind"]] = kinds.get(row["kind"], 0) + 1
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "nothing"


def list_whole(epweave, traces: dict[int, pathlib.Path]) -> list[int]:
    """Ranks that hold as much of each parameter as rank 0: where torch cuts unevenly, the last hold less."""
    def shapes(path):
        nodes = json.loads(epweave.run("print", path, "--json")[0].stdout)["nodes"]
        return [node["type"].get("shape") for node in nodes if node["op"] == "placeholder" and node["type"]]
    return [rank for rank, path in traces.items() if shapes(path) == shapes(traces[0])]


def count_gathers(epweave, graph) -> int:
    nodes = json.loads(epweave.run("print", graph, "--json")[0].stdout)["nodes"]
    return sum("all_gather_into_tensor" in str(node["target"]) for node in nodes)


def list_groups(epweave, graph) -> dict[str, list]:
    """The members of each group that a pass added, by its name."""
    done, _ = epweave.run("convert", graph, "-", "--to", "text")
    rows = re.findall(r"^group (\S+) ranks=(\[[\d, ]+\]).* split_from=", done.stdout, re.MULTILINE)
    return {name: json.loads(ranks) for name, ranks in rows}


def compare_passes(epweave, general, traces: dict[int, pathlib.Path], folder) -> list[tuple[str, str, bool]]:
    """Rows about passes on the general graph beside the same on the last rank's own trace."""
    last = max(traces)
    out = [folder / "general.out.epw", folder / "own.out.epw"]
    counts = []
    for graph, to in zip((general, traces[last]), out):
        epweave.run("rewrite", graph, "-p", f"{PIPELINE},bucket", "-o", to)
        counts.append(count_gathers(epweave, to))
    rows = [("all-gathers; behind dedup-unshard and bucket; the same of a rank's own trace",
             f"{count_gathers(epweave, general)}; {counts[0]}; {counts[1]}", counts[0] == counts[1])]
    split = f"{PIPELINE},symbolize,chunk,isolate-ep-pg,reassign-pgs"
    done, _ = epweave.run("rewrite", general, "-p", split, "-o", out[0], allowed=(0, 4))
    if done.returncode:  # there is no mixture of experts
        split = f"{PIPELINE},reassign-pgs"
        epweave.run("rewrite", general, "-p", split, "-o", out[0])
    same, names = 0, ""
    for rank, trace in traces.items():
        epweave.run("specialize", out[0], "--rank", rank, "-o", folder / "split.epw")
        epweave.run("rewrite", trace, "-p", split, "-o", out[1])
        here, there = list_groups(epweave, folder / "split.epw"), list_groups(epweave, out[1])
        same += sorted(here.values()) == sorted(there.values())
        names = f"; {len(here)} groups, on rank {rank} {', '.join(map(str, here.values()))}" if here else "; none is split"
    rows.append((f"members of the groups that {' and '.join(name for name in split.split(',') if '-pg' in name)} add = those on the rank's own trace",
                 f"{same} of {len(traces)} ranks{names}", same == len(traces)))
    epweave.run("artifact", "make", general, "--config", "deterministic=true", "-o", out[0])
    _, seconds = epweave.run("artifact", "check", out[0], "--config", "deterministic=true")
    return [*rows, ("artifact check", f"{seconds:.2f} s", True)]


def compare_traces(epweave, traces: dict[int, pathlib.Path], given, folder) -> list[tuple[str, str, bool]]:
    """Rows of the table about traces of ranks: what is asked, what was seen, whether it is as wanted."""
    rows = []
    for rank, path in list(traces.items())[1:]:
        done, _ = epweave.run("diff", traces[0], path, "--ignore", IGNORED, "--json", allowed=(0, 1))
        rows.append((f"nodes that differ, rank {rank} against rank 0", str(count_nodes(json.loads(done.stdout))),
                     True))
    general = folder / "general.epw"
    whole = [rank for rank in list_whole(epweave, traces) if not given or rank in given]
    done, seconds = epweave.run("generalize", *(traces[rank] for rank in whole), "-o", general, "--json", allowed=(0, 1))
    report = json.loads(done.stdout)
    rows.append((f"generalize of ranks {', '.join(map(str, whole))}",
                 f"explained: {count_kinds(report['explained'])}; unexplained: {len(report['unexplained'])};"
                 f" {seconds:.2f} s", report["ok"]))
    if not report["ok"]:
        return rows
    rows.append(compare_specialised(epweave, general, traces, folder, "general"))
    rows.append(("verify --ranks of the general graph", *verify_ranks(epweave, general)))
    rows.append(("replay of the general graph against its rewrite, all ranks", *replay(epweave, general, folder)))
    return rows + compare_passes(epweave, general, traces, folder)


def compare_specialised(epweave, graph, traces, folder, name) -> tuple[str, str, bool]:
    same, longest = [], 0.0
    for rank, path in traces.items():
        own = folder / f"{name}-{rank}.epw"
        _, seconds = epweave.run("specialize", graph, "--rank", rank, "-o", own)
        longest = max(longest, seconds)
        if epweave.same_step(path, own):
            same.append(rank)
    return (f"{name} graph specialised = the rank's own trace",
            f"{len(same)} of {len(traces)}; {longest:.2f} s each", len(same) == len(traces))


def verify_ranks(epweave, graph) -> tuple[str, bool]:
    done, _ = epweave.run("verify", "--ranks", graph, "--json", allowed=(0, 1))
    report = json.loads(done.stdout)
    if report["ok"]:
        return f"{report['ranks']} ranks, {report['collectives']} collectives agree", True
    kinds = sorted({row["invariant"] for row in report["violations"]})
    return f"{len(report['violations'])} violations: {', '.join(kinds)}", False


def replay(epweave, graph, folder) -> tuple[str, bool]:
    rewritten = folder / "rewritten.epw"
    epweave.run("rewrite", graph, "-p", PIPELINE, "-o", rewritten)
    program = Program(str(pathlib.Path(epweave.path).with_name("epweave-replay")))
    done, _ = program.run("check", graph, rewritten, "--json", allowed=(0, 1, 3))
    if done.returncode == 3:  # all ranks replay the file as it is
        return "not run: " + done.stderr.strip().removeprefix("epweave-replay: error: "), "cut unevenly" in done.stderr
    return ("every output bitwise" if done.returncode == 0 else "outputs differ"), done.returncode == 0


def compare_agnostic(epweave, path, traces, folder) -> list[tuple[str, str, bool]]:
    """Rows about torchtitan's own graph for all ranks."""
    seen, _ = verify_ranks(epweave, path)
    rows = [("rank-agnostic trace: verify --ranks", seen, True)]
    repaired = folder / "repaired.epw"
    done, _ = epweave.run("generalize", path, "--repair", "-o", repaired, "--json", allowed=(0, 1))
    report = json.loads(done.stdout)
    rows.append(("rank-agnostic trace: generalize --repair",
                 f"replaced: {count_kinds(report['explained'])}; unexplained: {len(report['unexplained'])}",
                 report["ok"]))
    if report["ok"]:
        rows.append(("repaired: verify --ranks", *verify_ranks(epweave, repaired)))
        rows.append(compare_specialised(epweave, repaired, traces, folder, "repaired"))
    return rows


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="compare_ranks.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama3", help="as trace_torchtitan.py has it (default llama3)")
    parser.add_argument("--dp-replicate", type=int, default=1, metavar="N", help="data-parallel replicas (default 1)")
    parser.add_argument("--dp-shard", type=int, default=2, metavar="N", help="data-parallel shards (default 2)")
    parser.add_argument("--tp", type=int, default=2, metavar="N", help="tensor-parallel ranks (default 2)")
    parser.add_argument("--ep", type=int, default=1, metavar="N", help="expert-parallel ranks (default 1)")
    parser.add_argument("--layers", type=int, metavar="N", help="of the model (default: all of its debug model's)")
    parser.add_argument("--given", metavar="R,..", help="ranks whose traces generalize is given (default: all that are traced)")
    parser.add_argument("--all-ranks", action="store_true", help="trace every rank")
    parser.add_argument("--epweave", metavar="PROGRAM", help="by default the one that the package epweave runs")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="leave the graphs here, and take traces that are here already")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    options = parser.parse_args(arguments)
    if count_ranks(options) < 2:
        parser.error("a job of one rank has nothing to compare")
    ranks = list(range(count_ranks(options))) if options.all_ranks else pick_ranks(options)
    try:
        given = [int(word) for word in options.given.split(",")] if options.given else []
    except ValueError:
        parser.error(f"--given: '{options.given}' is no list of ranks, such as 0,1,4")
    if given and (0 not in given or not set(given) <= set(ranks)):
        parser.error(f"--given: rank 0, and others of those that are traced: {', '.join(map(str, ranks))}")
    try:
        options.epweave = options.epweave or find_program("epweave")
    except UsageError as error:
        parser.error(str(error))
    if not shutil.which(options.epweave):
        parser.error(f"there is no program '{options.epweave}': give it by --epweave, or install it")
    with contextlib.ExitStack() as stack:
        folder = options.keep or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        epweave = Program(options.epweave)
        traces = {}
        for rank in ranks:
            path, why = trace(options, folder, f"rank{rank}", "--rank", str(rank))
            if path is None:
                print(f"compare_ranks: rank {rank}: {why}", file=sys.stderr)
                return 3
            traces[rank] = path
        rows = compare_traces(epweave, traces, given, folder)
        agnostic, why = trace(options, folder, "agnostic", "--rank-agnostic")
        rows += (compare_agnostic(epweave, agnostic, traces, folder) if agnostic
                 else [("rank-agnostic trace", f"torchtitan gives none: {why}", True)])
    if options.json:
        print(json.dumps([{"what": what, "seen": seen, "ok": ok} for what, seen, ok in rows], indent=2))
    else:
        print("| what | seen |\n|---|---|")
        for what, seen, ok in rows:
            print(f"| {what} | {seen}{'' if ok else ' (not as wanted)'} |")
    return 0 if all(ok for _, _, ok in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
