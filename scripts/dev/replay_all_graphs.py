#!/usr/bin/env python3
"""Run every graph of a folder on its virtual ranks and compare the stages of the same graph bit for bit.

    scripts/dev/replay_all_graphs.py FOLDER [NAME...]     FOLDER holds NAME.STAGE.epw or .epw.gz; all names if none given

For each graph `epweave-replay run --json --report-types` is run once. The table says
  result     ok; refused: larger than --memory or an op without a kernel; FAILED: what stopped it
  loss       smallest and largest of the ranks, and what a uniform guess would give (ln(vocabulary) / batch ranks)
  types      recorded types that values contradict (torchtitan's chunk pass records the whole's sizes for parts)
  same as    the first stage of the same graph all of whose outputs, on every rank, have the same bits

Wrong is: a run that fails; a loss that is not finite or further than --loss-tolerance from the uniform guess; 1_norm or
1b_remat unlike 0_traced; a stage after the last of 1b_remat and 2_* that is unlike it.
Exit codes: 0 nothing wrong, 1 something is, 2 usage.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
REFUSED = 4


def run_graph(replay, path, memory):
    command = [str(replay), "run", "--json", "--quiet", "--report-types"]
    if memory:
        command += ["--memory", memory]
    start = time.monotonic()
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
    seconds = time.monotonic() - start
    try:
        report = json.loads(done.stdout)
    except json.JSONDecodeError:
        report = {"error": {"message": done.stderr.strip() or "no message"}}
    return done.returncode, report, seconds


def read_bits(report):
    """(rank, output) -> hash."""
    return {
        (rank["rank"], result["name"]): result["hash"]
        for rank in report["ranks"]
        for result in rank["results"]
    }


def read_losses(report):
    return [result["norm"] for rank in report["ranks"] for result in rank["results"] if result["name"] == "loss"]


class Family:
    """The stages of one graph, in order."""

    def __init__(self):
        self.bits = {}  # by stage

    def add(self, stage, bits):
        same = next((other for other, known in self.bits.items() if known == bits), "")
        self.bits[stage] = bits
        return same

    def count_differing(self, stage, other):
        a, b = self.bits[stage], self.bits[other]
        return sum(a.get(key) != b.get(key) for key in a.keys() | b.keys())

    def promised(self, stage):
        """The stage whose bits this one must have, or none."""
        if stage in ("1_norm", "1b_remat"):
            return "0_traced" if "0_traced" in self.bits else None
        chunked = [other for other in self.bits if other.startswith("2_") and other != stage]
        if stage.startswith("2_"):
            # Chunking regroups sums, unless it was done in eager mode before the graph was traced.
            return "1b_remat" if stage == "2_eagerchunk" and "1b_remat" in self.bits else None
        return chunked[-1] if chunked else "1b_remat" if "1b_remat" in self.bits else None


def judge_loss(report, tolerance):
    losses, expected = read_losses(report), report["expected_loss"]
    if not losses:
        return "no loss", []
    if not report["loss_is_finite"]:
        return "not finite", ["the loss is not finite"]
    text = f"{min(losses):.4f}..{max(losses):.4f}"
    if expected is None:
        return text, []
    wrong = [f"a loss is far from {expected:.4f}"] if any(
        abs(loss - expected) > tolerance * expected for loss in losses) else []
    return f"{text} ({expected:.4f})", wrong


def run_all(args):
    families, problems = {}, []
    print(f"{'graph':44} {'result':8} {'s':>6} {'MiB':>6}  {'loss (uniform guess)':26} {'types':>6}  same as")
    for path in sorted(args.folder.glob("*.epw*")):
        name, _, stage = path.name.removesuffix(".gz").removesuffix(".epw").partition(".")
        if args.names and name not in args.names:
            continue
        code, report, seconds = run_graph(args.replay, path, args.memory)
        title = f"{name}.{stage}"
        if code != 0:
            message = report.get("error", {}).get("message", "no message")
            print(f"{title:44} {'refused' if code == REFUSED else 'FAILED':8} {seconds:6.1f}  {message[:300]}", flush=True)
            if code != REFUSED:
                problems.append(f"{title}: exit {code}")
            continue
        family = families.setdefault(name, Family())
        same = family.add(stage, read_bits(report))
        loss, wrong = judge_loss(report, args.loss_tolerance)
        promised = family.promised(stage)
        if promised is not None and (count := family.count_differing(stage, promised)):
            wrong.append(f"{count} outputs differ from {promised}")
        problems += [f"{title}: {problem}" for problem in wrong]
        row = f"{title:44} {'ok':8} {seconds:6.1f} {report['peak_bytes'] >> 20:6}  {loss:26}"
        print(f"{row} {report['contradicted_types']:6}  {same}{' WRONG: ' + '; '.join(wrong) if wrong else ''}", flush=True)
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--replay", type=pathlib.Path, default=ROOT / "build/release/bin/epweave-replay")
    parser.add_argument("--memory", help="passed on: refuse graphs that need more")
    parser.add_argument("--loss-tolerance", type=float, default=0.05, help="relative (default 0.05)")
    args = parser.parse_args()
    if not args.folder.is_dir():
        parser.error(f"{args.folder} is no folder")
    problems = run_all(args)
    print(f"{len(problems)} wrong", *problems, sep="\n  ")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
