#!/usr/bin/env python3
"""A step on ASTRA-sim, beside epweave's own clock.

    astra_sim.py G.epw --astra-sim DIR [--cluster h100+nic=4e11] [--backend unaware|aware] [--set key=value ...]

DIR holds sources or a finished build of ASTRA-sim with its analytical backends (docs/astra_sim.md says which commits were tried
and what they need). Where the program is not built yet, DIR's own build script is run. The graph is written as execution traces of
all ranks (`epweave convert --to chakra`), with a system and a network as close to the cost model as the simulator allows.

Prints both makespans and how many ranks finished. Exit codes: 0 all ranks finished, 1 some did not, 2 usage, 3 no build.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
BINARIES = {"unaware": "AstraSim_Analytical_Congestion_Unaware", "aware": "AstraSim_Analytical_Congestion_Aware"}
GIB = 2**30  # the backends' "GB/s" counts these


def build(folder, backend):
    """The path of the program, built if it is not there."""
    for _ in range(2):
        found = sorted(folder.rglob(BINARIES[backend]))
        if found:
            return found[0]
        script = folder / "build" / "astra_analytical" / "build.sh"
        if not script.exists():
            break
        subprocess.run(["bash", script], cwd=folder, check=True)
    sys.exit(f"{folder}: there is no {BINARIES[backend]}, nor build/astra_analytical/build.sh that would build it")


def write_inputs(folder, ranks, nvlink, options):
    system = {
        "scheduling-policy": "FIFO",
        "endpoint-delay": 1,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        "all-reduce-implementation": ["ring"],
        "all-gather-implementation": ["ring"],
        "reduce-scatter-implementation": ["ring"],
        "all-to-all-implementation": ["direct1" if options.backend == "unaware" else "direct"],
        "collective-optimization": "baseline",
        "local-mem-bw": 1000000000,  # reducing on a rank costs nothing, as in the cost model
        "roofline-enabled": 1,
        "peak-perf": 1,
        "boost-mode": 0,
    }
    for assignment in options.set:
        key, value = assignment.split("=", 1)
        system[key] = json.loads(value)
    (folder / "system.json").write_text(json.dumps(system, indent=2))
    (folder / "memory.json").write_text(json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}))
    (folder / "network.yml").write_text(
        f"topology: [ Switch ]\nnpus_count: [ {ranks} ]\nbandwidth: [ {nvlink / GIB:.3f} ]\nlatency: [ 0 ]\n"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=pathlib.Path)
    parser.add_argument("--astra-sim", type=pathlib.Path, required=True)
    parser.add_argument("--cluster", default="h100")
    parser.add_argument("--nvlink", type=float, default=370e9, help="bytes per second of the network (default: 370e9)")
    parser.add_argument("--network", type=pathlib.Path, help="another network file, of as many ranks")
    parser.add_argument("--backend", choices=BINARIES, default="unaware")
    parser.add_argument("--set", action="append", default=[], help="key=value of the system file, the value as JSON")
    parser.add_argument("--epweave", default=ROOT / "build" / "release" / "bin" / "epweave", type=pathlib.Path)
    options = parser.parse_args()
    program = build(options.astra_sim, options.backend)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        traces = folder / "traces"
        words = [options.epweave, "convert", options.graph, "--to", "chakra", "-o", traces, "--cluster", options.cluster, "--json"]
        report = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        write_inputs(folder, report["ranks"], options.nvlink, options)
        words = [
            program,
            f"--workload-configuration={traces / 'trace'}",
            f"--comm-group-configuration={traces / 'groups.json'}",
            f"--system-configuration={folder / 'system.json'}",
            f"--remote-memory-configuration={folder / 'memory.json'}",
            f"--network-configuration={options.network or folder / 'network.yml'}",
        ]
        result = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)
    ends = [int(n) for n in re.findall(r"sys\[\d+\] finished, (\d+) cycles", result.stdout + result.stderr)]
    theirs = f"{max(ends) / 1e6:.3f} ms" if ends else "no rank finished"
    print(f"epweave {report['makespan_ms']:.3f} ms, ASTRA-sim {theirs}; {len(ends)} of {report['ranks']} ranks finished")
    # A run that hangs ends with exit code 0 and fewer ranks.
    return 0 if len(ends) == report["ranks"] else 1


if __name__ == "__main__":
    sys.exit(main())
