#!/usr/bin/env python3
"""Executes scheduled and bucketed steps beside what they were made of, and prints a table of the verdicts.

    scripts/dev/run_schedules.py GRAPH.. [--epweave BIN] [--replay BIN] [--tokens 128] [--layers 2]

Each graph is first made small (`epweave resize`), so that all of them can be run on a CPU; where it cannot be, it is left
out and named. Then each pipeline's result is compared with it by `epweave-replay check --jitter 1 --report-types` (torchtitan's
chunked graphs record types of the whole for parts). Exit codes: 0 all that ran are `same`, 1 one is not.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PIPELINES = [
    ["-p", "schedule"],
    ["-p", "bucket{plan=blocks},schedule"],
    ["-p", "bucket{plan=overlap},schedule{recompute=free}"],
    ["--preset", "overlap"],
]


def run(command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


def last_line(done):
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[-1] if lines else ""


def make_small(options, graph, small):
    """Fewer layers and tokens, as many as the graph takes; the sizes that were set."""
    listed = {line.split()[0] for line in run([options.epweave, "resize", graph, "--list"]).stdout.splitlines() if line}
    sizes = [f"{name}={value}" for name, value in (("tokens", options.tokens), ("layers", options.layers)) if name in listed]
    for tried in (sizes, sizes[:1], sizes[1:]):
        words = [word for size in tried for word in ("--set", size)]
        if tried and run([options.epweave, "resize", graph, *words, "-o", small]).returncode == 0:
            return ", ".join(tried)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", type=pathlib.Path)
    parser.add_argument("--epweave", default=ROOT / "build/release/bin/epweave")
    parser.add_argument("--replay", default=ROOT / "build/release/bin/epweave-replay")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args()
    wrong, left_out = 0, []
    print("| graph | sizes | rewrite | verdict |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        small, result = (pathlib.Path(folder) / name for name in ("small.epw", "result.epw"))
        for graph in options.graphs:
            name = graph.name.removesuffix(".gz").removesuffix(".epw")
            sizes = make_small(options, graph, small)
            if sizes is None:
                left_out.append(name)
                continue
            for pipeline in PIPELINES:
                made = run([options.epweave, "rewrite", small, *pipeline, "-o", result, "-q"])
                if made.returncode != 0:
                    verdict = last_line(made)
                else:
                    done = run([options.replay, "check", small, result, "--jitter", 1, "--report-types"])
                    verdict = "same" if done.returncode == 0 else last_line(done)
                    wrong += done.returncode != 0
                print(f"| `{name}` | {sizes} | `{pipeline[1]}` | {verdict} |", flush=True)
    if left_out:
        print(f"Not made small: {', '.join(left_out)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
