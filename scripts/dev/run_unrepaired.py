#!/usr/bin/env python3
"""What a trace for all ranks computes while numbers of rank 0 stand in it: Llama 3 with tensor parallelism, on the CPU.

    run_unrepaired.py [--layers 2] [--tp 2] [--steps 2] [--json FILE]

One process traces the debug model for all ranks (torchtitan's compile-on-one-rank mode, fake process group). Then gloo ranks
train with the same weights and batches three times: each traces for itself (`none`); each loads the artifact whose numbers
`epweave generalize --repair` has replaced (`artifact`); each runs the one trace as it is, which epweave refuses to make an
artifact of and this script loads past its checks (`unrepaired`). Printed are losses, gradient norms, and the hash of all
parameters.

Needs torch 2.15 and torchtitan 0.3. Exit codes: 0 the repaired artifact trains with the bits of a trace per rank and the
unrepaired one does not, 1 otherwise, 2 usage.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1]))
import epweave_fx  # noqa: E402,F401  it knows where the package is
from epweave import train_on_cpu  # noqa: E402


def write_trace(arguments: list[str], folder: str) -> None:
    """The step as traced for all ranks, and how it is called; ends this process."""
    from epweave import torchtitan
    os.environ["EPWEAVE_TRACE"] = folder
    options = train_on_cpu.make_parser().parse_args([*arguments, "--precompile", folder])
    options.pipeline, options.ep = "epweave", 1
    facts_of = torchtitan._export_facts

    def for_all_ranks(*args):
        facts = facts_of(*args)
        facts["info"]["compile_on_one_rank"] = True
        return facts

    torchtitan._export_facts = for_all_ranks
    train_on_cpu.run_step(train_on_cpu.set_up(options, "fake", rank=0), options, 0, 0)


def run_unchecked(arguments: list[str]) -> int:
    """A rank of a run whose artifact is the trace itself: nothing is checked, and no rank gets a graph of its own."""
    from epweave import artifact
    load = artifact.load
    artifact.check_artifact = lambda *args, **more: {}
    artifact.load = lambda path, *, device=None, **more: load(path, device=device)
    return train_on_cpu.main(arguments)


def train(name: str, pipeline: str, arguments: list[str], options, command=None) -> dict:
    print(f"{name} ..", file=sys.stderr, flush=True)
    usual = train_on_cpu.rank_command
    train_on_cpu.rank_command = command or usual
    try:
        return train_on_cpu.run_pipeline(pipeline, {}, arguments, options)
    finally:
        train_on_cpu.rank_command = usual


def run_child(words: list[str]) -> None:
    subprocess.run([sys.executable, "-W", "ignore", *words], check=True, env=train_on_cpu.rank_environment())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path)
    asked = parser.parse_args()
    arguments = ["--cpu", "--model", "llama3", "--world", str(asked.tp), "--tp", str(asked.tp), "--layers", str(asked.layers),
                 "--sequence", "32", "--tokens", "64", "--steps", str(asked.steps)]
    rows = {}
    with tempfile.TemporaryDirectory(prefix="epweave-unrepaired-") as scratch:
        repaired, traced = pathlib.Path(scratch, "repaired"), pathlib.Path(scratch, "traced")
        print("tracing ..", file=sys.stderr, flush=True)
        run_child(["-m", "epweave.train_on_cpu", *arguments, "--precompile", str(repaired), "--repair"])
        run_child([str(HERE), "--trace-to", str(traced), *arguments])
        (traced / "rank-00000.epw").rename(traced / "step.epw")  # where a rank looks for its artifact
        options = train_on_cpu.make_parser().parse_args(arguments)
        options.artifact = [str(repaired)]
        rows["none"] = train("none", "none", arguments, options)
        rows["artifact"] = train("artifact", "artifact", arguments, options)
        options.artifact = [str(traced)]
        rows["unrepaired"] = train("unrepaired", "artifact", arguments, options,
                                   lambda words: [sys.executable, "-W", "ignore", str(HERE), "--rank", *words])
    train_on_cpu.print_table(rows)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")
    base = rows["none"]
    return 0 if rows["artifact"]["hash"] == base["hash"] != rows["unrepaired"]["hash"] else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        sys.exit(run_unchecked(sys.argv[2:]))
    if sys.argv[1:2] == ["--trace-to"]:
        write_trace(sys.argv[3:], sys.argv[2])
    sys.exit(main())
