#!/usr/bin/env python3
"""A step on ASTRA-sim, beside epweave's own clock.

    astra_sim.py G.epw --astra-sim DIR [--cluster h100+nic=4e11] [--backend unaware|aware] [--set key=value ...]

DIR holds sources or a finished build of ASTRA-sim with its analytical backends (docs/astra_sim.md says which commits were tried
and what they need). Where the program is not built yet, DIR's own build script is run. The graph is written as execution traces of
all ranks (`epweave convert --to chakra`), with a system and a network as close to the cost model as the simulator allows: one
switch, or, where the ranks are on several nodes of the cluster, one in each node and one between nodes.

Prints both makespans and how many ranks finished. Exit codes: 0 all ranks finished, 1 some did not, 2 usage, 3 no build; where
epweave fails, its own.
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
        if subprocess.run(["bash", script], cwd=folder, check=False).returncode:
            fail(f"{script} failed", 3)
    fail(f"{folder}: there is no {BINARIES[backend]}, nor build/astra_analytical/build.sh that would build it", 3)


def fail(message, code):
    print(message, file=sys.stderr)
    sys.exit(code)


def assignment_of(text):
    """(key, value) of key=value, the value as JSON."""
    key, equals, value = text.partition("=")
    try:
        if key and equals:
            return key, json.loads(value)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is no KEY=VALUE with a value in JSON")


def list_dimensions(ranks, cluster):
    """Ranks and bytes per second of each dimension of the network."""
    local = int(cluster["gpus_per_node"])
    if ranks <= local:
        return [(ranks, cluster["nvlink"])]
    if ranks % local:
        fail(f"{ranks} ranks are no whole nodes of {local}: give a network by --network", 2)
    return [(local, cluster["nvlink"]), (ranks // local, cluster["nic"] * cluster["nic_eff"])]


def write_system(folder, every, options):
    """`every`: how many dimensions the network has; --set gives lists for another --network's."""
    system = {
        "scheduling-policy": "FIFO",
        "endpoint-delay": 1,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        "all-reduce-implementation": ["ring"] * every,
        "all-gather-implementation": ["ring"] * every,
        "reduce-scatter-implementation": ["ring"] * every,
        "all-to-all-implementation": ["direct1" if options.backend == "unaware" else "direct"] * every,
        "collective-optimization": "baseline",
        "local-mem-bw": 1000000000,  # reducing on a rank costs nothing, as in the cost model
        "roofline-enabled": 1,
        "peak-perf": 1,
        "boost-mode": 0,
    }
    system.update(options.set)
    (folder / "system.json").write_text(json.dumps(system, indent=2))
    (folder / "memory.json").write_text(json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}))


def write_network(path, dimensions):
    lists = {
        "topology": ["Switch"] * len(dimensions),
        "npus_count": [ranks for ranks, _ in dimensions],
        "bandwidth": [f"{rate / GIB:.3f}" for _, rate in dimensions],
        "latency": [0] * len(dimensions),
    }
    path.write_text("".join(f"{key}: [ {', '.join(map(str, values))} ]\n" for key, values in lists.items()))


def run_json(words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        fail(done.stderr.strip(), done.returncode)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=pathlib.Path, metavar="G", help="graph file")
    parser.add_argument("--astra-sim", type=pathlib.Path, required=True, metavar="DIR", help="sources or a build of ASTRA-sim")
    parser.add_argument("--cluster", default="h100", help="as epweave simulate has it (default h100)")
    parser.add_argument("--network", type=pathlib.Path, metavar="FILE", help="another network file, of as many ranks")
    parser.add_argument("--backend", choices=BINARIES, default="unaware",
                        help="whether collectives of different groups slow each other down (default unaware)")
    parser.add_argument("--set", type=assignment_of, action="append", default=[], metavar="KEY=VALUE",
                        help="a value of the system file, as JSON")
    parser.add_argument("--epweave", default=ROOT / "build" / "release" / "bin" / "epweave", type=pathlib.Path, metavar="PROGRAM",
                        help="default: the one of build/release")
    options = parser.parse_args()
    program = build(options.astra_sim.resolve(), options.backend)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        traces = folder / "traces"
        words = [options.epweave, "convert", options.graph, "--to", "chakra", "-o", traces, "--cluster", options.cluster, "--json"]
        report = run_json(words)
        cluster = run_json([options.epweave, "simulate", options.graph, "--cluster", options.cluster, "--json"])["cluster"]
        dimensions = [(report["ranks"], None)] if options.network else list_dimensions(report["ranks"], cluster)
        if len(dimensions) > 1 and options.backend == "aware":
            fail("the congestion-aware backend takes networks of one dimension: give one by --network", 2)
        write_system(folder, len(dimensions), options)
        if not options.network:
            write_network(folder / "network.yml", dimensions)
        words = [
            program,
            f"--workload-configuration={traces / 'trace'}",
            f"--comm-group-configuration={traces / 'groups.json'}",
            f"--system-configuration={folder / 'system.json'}",
            f"--remote-memory-configuration={folder / 'memory.json'}",
            f"--network-configuration={options.network.resolve() if options.network else folder / 'network.yml'}",
        ]
        result = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)
    ends = [int(n) for n in re.findall(r"sys\[\d+\] finished, (\d+) cycles", result.stdout + result.stderr)]
    theirs = f"{max(ends) / 1e6:.3f} ms" if ends else "no rank finished"
    print(f"epweave {report['makespan_ms']:.3f} ms, ASTRA-sim {theirs}; {len(ends)} of {report['ranks']} ranks finished")
    if len(ends) == report["ranks"]:
        return 0
    # A run that hangs ends with exit code 0 and fewer ranks.
    said = (result.stdout + result.stderr).strip().splitlines()
    print("\n".join([f"ASTRA-sim ended with exit code {result.returncode}:", *said[-5:]]), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
