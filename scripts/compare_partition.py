#!/usr/bin/env python3
"""PyTorch's partitioner and `epweave partition` on the same joint graph, side by side.

    compare_partition.py G.epw [--epweave PROGRAM] [--policy none|default|eager|full] [--json]

G is a joint graph with plain cross-entropy (one seed), normalised. The seed becomes a placeholder `tangents_1`, backward
calls are tagged for the partitioner, and torch's min_cut_rematerialization_partition runs at memory budget 1. Its saved
values, less those that its backward does not read ("torch unread": it drops them, too), are compared by name with those of
`epweave partition --policy min-cut`; both are priced by epweave's report.
With a policy other than none, epweave's memory-policy tags the graph for both first.

Needs torch 2.15, no GPU. Exit codes: 0 the same names, 1 others, 2 usage, 3 the graph cannot be loaded.
"""
from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import epweave_fx  # noqa: E402,F401  it knows where the package is
from epweave.errors import UsageError  # noqa: E402
from epweave.programs import find_program  # noqa: E402


def run(*command):
    start = time.perf_counter()
    subprocess.run([str(word) for word in command], check=True)
    return time.perf_counter() - start


def tag_graph(epweave, graph, policy, folder):
    if policy == "none":
        return graph
    tagged = pathlib.Path(folder) / "tagged.epw"
    run(epweave, "rewrite", graph, "-q", "-p", f"memory-policy{{policy={policy}}}", "-o", tagged)
    return tagged


def find_seeds(graph):
    """Values of ones that backward begins with: read by backward calls alone."""
    return [node for node in graph.nodes
            if node.op == "call_function" and "ones_like" in str(node.target) and node.users
            and not node.meta.get("autograd_backward")
            and all(user.meta.get("autograd_backward") for user in node.users)]


def is_mesh(item):
    return getattr(item, "op", "") == "placeholder" and "Mesh" in type(item.meta.get("val")).__name__


def prepare(module):
    """Makes the step a joint graph as AOTAutograd has it; returns how many outputs are forward's."""
    graph = module.graph
    seeds = find_seeds(graph)
    if len(seeds) != 1:
        sys.exit(f"compare_partition: the graph has {len(seeds)} seeds; trace it with plain cross-entropy")
    for node in graph.nodes:
        if node.meta.get("autograd_backward"):
            node.meta["partitioner_tag"] = "is_backward"
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    with graph.inserting_after(last):
        tangent = graph.placeholder("tangents_1")
    tangent.meta["val"] = seeds[0].meta["val"]
    seeds[0].replace_all_uses_with(tangent)
    graph.erase_node(seeds[0])
    output = next(iter(reversed(graph.nodes)))
    # Meshes that stand beside gradients are no values that a partition could save.
    output.args = (tuple(None if is_mesh(item) else item for item in output.args[0]),)
    output.meta.setdefault("desc", [None] * len(output.args[0]))
    module.recompile()
    return 1


def find_read(saved, outputs):
    """Those of the saved values that backward reads. PyTorch drops the others when it writes the backward graph."""
    saved, seen, read = set(saved), set(), set()
    stack = [node for node in outputs if hasattr(node, "all_input_nodes")]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in saved:
            read.add(node)
        else:
            stack.extend(node.all_input_nodes)
    return read


def partition_with_torch(path, state):
    import epweave_fx
    import torch
    import torch._functorch.partitioners as partitioners

    module = epweave_fx.load(str(path))
    forward_outputs = prepare(module)
    saved, read = [], set()
    choose = partitioners.choose_saved_values_set

    def record(joint_graph, *args, **kwargs):
        output = next(iter(reversed(joint_graph.nodes)))
        gradients = output.args[0][forward_outputs:]
        saved.extend(choose(joint_graph, *args, **kwargs))
        read.update(find_read(saved, gradients))
        return list(saved)

    partitioners.choose_saved_values_set = record
    start = time.perf_counter()
    try:
        partitioners.min_cut_rematerialization_partition(
            module, None, num_fwd_outputs=forward_outputs, static_lifetime_input_indices=state)
    except Exception as error:  # what it chose is known by then
        if not saved:
            raise
        print(f"note: torch chose what to save and then failed: {type(error).__name__}: {error}", file=sys.stderr)
    return saved, read, time.perf_counter() - start, torch.__version__


def list_state(path):
    """Positions of the inputs that are parameters or buffers."""
    import epweave_fx

    inputs = epweave_fx.read_file(str(path))["inputs"]
    return [i for i, role in enumerate(inputs) if role.get("role") in ("parameter", "buffer")]


def partition_with_epweave(epweave, path, policy, folder):
    report = pathlib.Path(folder) / f"{policy}.json"
    seconds = run(epweave, "partition", path, "-q", "--policy", policy, "--fwd", pathlib.Path(folder) / "F.epw",
                  "--bwd", pathlib.Path(folder) / "B.epw", "--report", report)
    return json.loads(report.read_text()), seconds


def compare(options):
    with tempfile.TemporaryDirectory() as folder:
        path = tag_graph(options.epweave, options.graph, options.policy, folder)
        theirs, read, torch_seconds, version = partition_with_torch(path, list_state(path))
        ours, seconds = partition_with_epweave(options.epweave, path, "min-cut", folder)
        exact, _ = partition_with_epweave(options.epweave, path, "exact", folder)
    chosen = {node.name for node in theirs if node.op != "placeholder" and hasattr(node.meta.get("val"), "shape")}
    tensors = chosen & {node.name for node in read}
    # Views of inputs are saved values, too, though their bytes are the input's.
    own = {row["name"] for row in ours["saved"]
           if row["why"] != "an input of the step" and row["kind"] != "symbol"}
    return {
        "graph": str(options.graph), "torch": version, "policy": options.policy,
        "torch_saved": len(tensors), "torch_unread": sorted(chosen - tensors), "epweave_saved": len(own),
        "only_torch": sorted(tensors - own), "only_epweave": sorted(own - tensors),
        "torch_seconds": torch_seconds, "epweave_seconds": seconds,
        "min_cut": {key: ours[key] for key in ("saved_bytes", "gathered_bytes", "recompute_seconds", "bound_seconds", "peak_bytes")},
        "exact": {key: exact[key] for key in ("saved_bytes", "gathered_bytes", "recompute_seconds", "bound_seconds", "peak_bytes")},
    }


def print_report(report):
    print(f"{report['graph']}, tags of policy {report['policy']}: torch {report['torch']} saves {report['torch_saved']} values, "
          f"epweave {report['epweave_saved']}")
    for key in ("only_torch", "only_epweave", "torch_unread"):
        if report[key]:
            print(f"  {key.replace('_', ' ')}: {' '.join(report[key])}")
    print(f"  {'':8}{'MiB':>10}{'gathered':>10}{'ms again':>10}{'bound':>10}{'peak MiB':>10}")
    for key in ("min_cut", "exact"):
        row = report[key]
        print(f"  {key:8}{row['saved_bytes'] / 2**20:10.2f}{row['gathered_bytes'] / 2**20:10.2f}"
              f"{row['recompute_seconds'] * 1e3:10.4f}{row['bound_seconds'] * 1e3:10.4f}{row['peak_bytes'] / 2**20:10.2f}")
    print(f"  {report['torch_seconds']:.3f} s in torch, {report['epweave_seconds']:.3f} s in epweave, file to file")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=pathlib.Path, metavar="G")
    parser.add_argument("--epweave", metavar="PROGRAM", help="by default the one that the package epweave runs")
    parser.add_argument("--policy", default="none", choices=("none", "default", "eager", "full"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        options.epweave = options.epweave or find_program("epweave")
    except UsageError as error:
        parser.error(str(error))
    report = compare(options)
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        print_report(report)
    return 1 if report["only_torch"] or report["only_epweave"] else 0


if __name__ == "__main__":
    sys.exit(main())
