#!/usr/bin/env python3
"""One job traced rank by rank and once for all ranks, side by side: what differs, and whether one graph can stand for all.

    compare_ranks.py [--model llama3] [--dp-replicate 1] [--dp-shard 2] [--tp 2] [--ep 1] [--layers N] [--epweave PROGRAM] [--keep DIR] [--json]

Traces rank 0, a rank of another place along each axis, the last rank, and the rank-agnostic graph, each in a process of
its own (fake process group, no GPU). Then: `generalize` of the traces (where parameters are cut unevenly, of those that
hold as much as rank 0), `specialize` of its result to each of them and `diff`; the rank-agnostic graph as traced by `verify --ranks`, repaired (`generalize --repair`), specialised and compared
with the traces; `verify --ranks` of the specialised graphs; `epweave-replay check` of a rewrite of the general graph.

Needs torch 2.15 and torchtitan 0.3. Exit codes: 0 all as wanted, 1 something differs, 2 usage, 3 a trace failed.
"""
from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
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


def compare_traces(epweave, traces: dict[int, pathlib.Path], folder) -> list[tuple[str, str, bool]]:
    """Rows of the table about traces of ranks: what is asked, what was seen, whether it is as wanted."""
    rows = []
    for rank, path in list(traces.items())[1:]:
        done, _ = epweave.run("diff", traces[0], path, "--ignore", IGNORED, "--json", allowed=(0, 1))
        rows.append((f"nodes that differ, rank {rank} against rank 0", str(count_nodes(json.loads(done.stdout))),
                     True))
    general = folder / "general.epw"
    whole = list_whole(epweave, traces)
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
    return rows


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
    parser.add_argument("--epweave", metavar="PROGRAM", help="by default the one that the package epweave runs")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="leave the graphs here, and take traces that are here already")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    options = parser.parse_args(arguments)
    if count_ranks(options) < 2:
        parser.error("a job of one rank has nothing to compare")
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
        for rank in pick_ranks(options):
            path, why = trace(options, folder, f"rank{rank}", "--rank", str(rank))
            if path is None:
                print(f"compare_ranks: rank {rank}: {why}", file=sys.stderr)
                return 3
            traces[rank] = path
        rows = compare_traces(epweave, traces, folder)
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
