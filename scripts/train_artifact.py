#!/usr/bin/env python3
"""Trains a job with one artifact for all ranks and with a trace on each rank, and prints both, step by step.

    train_artifact.py [--device cpu|cuda] [--world N] [--layers N] [--tokens N] [--sequence N] [--steps 5] [--rewrite PIPELINE]

The job is torchtitan's DeepSeek-V3 debug model, deterministic: DP 4 x TP 2 x EP 4 on 8 ranks; FSDP 2 x TP 2 x EP 4 on 4; EP 2 on 2.
--world is by default the largest of these for which there are GPUs, on the CPU (gloo) memory. The artifact is made first: of the
traces of ranks 0, 1, 2 (and 4), or of one trace for all ranks where there is no tensor parallelism. On the CPU and on GPUs
the same is run:

    artifact:
    step 1: loss=8.19444 grad_norm=1.4200
    ..
    epweave-1 and artifact: all parameters bitwise equal

Losses depend on weights, batches and kernels, which are ours: beside each other the two runs say whether the artifact is
right, and no run of others has these numbers. Needs torch 2.15 and torchtitan 0.3.

Exit codes: 0 every loss, norm and parameter has the same bits, 1 not so, or a rank failed, 2 usage, 77 too few devices or too little memory.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PYTHON = pathlib.Path(__file__).resolve().parents[1] / "python"
# By ranks: tensor- and expert-parallel ones, and whose traces are joined.
JOBS = {8: (2, 4, "0,1,2,4"), 4: (2, 4, "0,1,2"), 2: (1, 2, None)}
GIB_OF_RANK = 1.5  # of a process on the CPU: torch, torchtitan, the debug model
TOO_SMALL = 77


def count_places(device: str) -> int:
    """GPUs, or processes that memory is free for."""
    if device == "cuda":
        import torch
        return torch.cuda.device_count()
    text = pathlib.Path("/proc/meminfo").read_text()
    free = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("MemAvailable:"))
    return int(free / 2**20 / GIB_OF_RANK)


def run(words: list[str]) -> int:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(PYTHON), os.environ.get("PYTHONPATH")]))}
    return subprocess.run([sys.executable, "-W", "ignore", "-m", "epweave.torchtitan", *words], check=False, env=environment).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cpu with gloo (the default), or cuda with NCCL")
    parser.add_argument("--world", type=int, choices=sorted(JOBS), help="ranks (default: what there is room for)")
    parser.add_argument("--layers", type=int, metavar="N", help="number of layers (default: the model's)")
    parser.add_argument("--tokens", type=int, default=64, metavar="N", help="tokens per rank (default 64)")
    parser.add_argument("--sequence", type=int, default=32, metavar="N", help="tokens per sequence (default 32)")
    parser.add_argument("--steps", type=int, default=5, metavar="N", help="training steps (default 5)")
    parser.add_argument("--seed", type=int, default=42, metavar="S", help="of weights and batches (default 42)")
    parser.add_argument("--rewrite", default="dce,canonicalize,dedup-unshard", metavar="PIPELINE",
                        help="what epweave is to run (default dce,canonicalize,dedup-unshard)")
    options = parser.parse_args()
    places = count_places(options.device)
    world = options.world or max((ranks for ranks in JOBS if ranks <= places), default=0)
    if not 0 < world <= places:
        what = "GPUs" if options.device == "cuda" else f"ranks fit into memory ({GIB_OF_RANK} GiB each)"
        print(f"train_artifact.py: {places} {what}; {world or min(JOBS)} are needed", file=sys.stderr)
        return TOO_SMALL
    tp, ep, ranks = JOBS[world]
    job = ["--model", "deepseek_v3", "--device", options.device, "--world", world, "--tp", tp, "--ep", ep,
           "--tokens", options.tokens, "--sequence", options.sequence, "--seed", options.seed, "--rewrite", options.rewrite,
           *(["--layers", options.layers] if options.layers else [])]
    job = [str(word) for word in job]
    print(f"DeepSeek-V3 debug, DP {world // tp} x TP {tp} x EP {ep}, {world} ranks, {options.device}, {options.rewrite}", flush=True)
    with tempfile.TemporaryDirectory(prefix="epweave-artifact-") as folder:
        if code := run([*job, "--precompile", folder, *(["--ranks", ranks] if ranks else [])]):
            return code
        report = pathlib.Path(folder) / "report.json"
        code = run([*job, "--compare", "artifact,epweave", "--artifact", folder, "--steps", str(options.steps), "--by-step",
                    "--tolerance", "0", "--json", str(report)])
        rows = list(json.loads(report.read_text()).values()) if report.exists() else []
    return code or int(len({row["hash"] for row in rows}) != 1)


if __name__ == "__main__":
    sys.exit(main())
