#!/usr/bin/env python3
"""Holds schedule{like=inductor} against PyTorch's overlap scheduler itself.

    compare_with_inductor.py --epweave build/release/bin/epweave [--seeds 200] [--first 0] [--nodes 60]     on random steps
    compare_with_inductor.py --epweave build/release/bin/epweave --graphs GRAPH.epw ..                      on real ones
    compare_with_inductor.py --epweave build/release/bin/epweave --buckets custom_ops ..                    with its bucketer

A random step has products, pointwise ops, views and collectives of three groups, with times drawn for each kind of call.
Both schedulers get the same times (a hook there, a file of costs here) and the same knobs, drawn as well. A real graph is
loaded into fx, with storage shared as the op schemas say, priced by `epweave simulate --trace`, and scheduled by default
knobs; its symbols need numbers. Prints the first difference of the orders and exits 1 where there is one. Needs torch 2.15.

With buckets, each node is compared with what it takes: nodes of the given step by their names, those that were written by
their ops and places. So the same collectives are merged in the same order, or there is a difference.
"""
import argparse
import json
import logging
import operator
import pathlib
import random
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
from torch._dynamo import graph_deduplication
from torch._inductor import config
from torch._inductor.augmented_graph_helper import AugmentedGraphHelper
from torch._inductor.fx_passes import bucketing, node_runtime_estimation, overlap_preserving_bucketer, overlap_scheduling
from torch._inductor.fx_passes.memory_estimator import GraphAliasTracker
from torch._inductor.fx_passes.overlap_scheduling import OverlapScheduler
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._ordered_set import OrderedSet
from torch.testing._internal.distributed.fake_pg import FakeStore

logging.getLogger("torch._inductor.utils").setLevel(logging.ERROR)  # no device to read figures of
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
from epweave import exporter, loader  # noqa: E402

GraphAliasTracker.own_storages = staticmethod(GraphAliasTracker._get_output_storages)
RANKS = 4
COLLECTIVES = torch.ops._c10d_functional
LATENCY_MS = 0.02  # of the cluster h100: coll_us
POINTWISE = (torch.ops.aten.relu.default, torch.ops.aten.neg.default, torch.ops.aten.sin.default)
REQUIRED = {}  # by node: what must stand in front of it though it takes nothing of it
BINARY = (torch.ops.aten.add.Tensor, torch.ops.aten.mul.Tensor)
DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}


def launch(rng, x, groups):
    group, kind = rng.choice(groups), rng.randrange(4)
    if kind == 0:
        return COLLECTIVES.all_reduce(x, "sum", group)
    if kind == 1:
        return COLLECTIVES.all_gather_into_tensor(x, RANKS, group)
    if kind == 2:
        return COLLECTIVES.reduce_scatter_tensor(x, "sum", RANKS, group)
    split = [x.shape[0] // RANKS] * RANKS
    return COLLECTIVES.all_to_all_single(x, split, split, group)


def gather_cast(rng, x, groups):
    """A gather of a bf16 copy, as of parameters that are kept in f32."""
    group = rng.choice(groups)
    return COLLECTIVES.wait_tensor(COLLECTIVES.all_gather_into_tensor(x.to(torch.bfloat16), RANKS, group)).to(torch.float32)


def make_step(rng, nodes, groups, casts):
    """A function of square tensors, and their shapes; results of collectives are cut or repeated to squares again."""
    width = rng.choice((8, 16, 32))

    def step(*inputs):
        values, returned = list(inputs), []
        for _ in range(nodes):
            x, kind = rng.choice(values[-12:]), rng.random()
            if kind < 0.25:
                values.append(torch.mm(x, rng.choice(values)))
            elif kind < 0.45:
                values.append(rng.choice(POINTWISE)(x))
            elif kind < 0.6:
                values.append(rng.choice(BINARY)(x, rng.choice(values)))
            elif kind < 0.65:
                values.append(x.t())
            elif casts and kind < 0.8:
                values.append(gather_cast(rng, x, groups)[:width])
            else:
                whole = COLLECTIVES.wait_tensor(launch(rng, x, groups))
                if rng.random() < 0.3:
                    returned.append(whole)
                elif whole.shape[0] >= width:
                    values.append(torch.ops.aten.slice.Tensor(whole, 0, 0, width))
                else:
                    values.append(torch.ops.aten.expand.default(whole[:1], [width, width]))
        return (*returned, *values[-3:])

    return step, [[width, width]] * rng.randint(2, 5)


def describe(tensors):
    return ", ".join(f"{DTYPES[t.dtype]}[{', '.join(map(str, t.shape))}]" for t in tensors)


def draw_times(rng, graph):
    """Milliseconds of each call, alike for calls of one op and operands, and the file of costs that says the same."""
    times, rows, by_node = {}, {"ops": [], "collectives": []}, {}

    def statistics(ms):
        return {"samples": 1, **{key: ms * 1000 for key in ("min", "p10", "p50", "p90", "p99", "max", "mean")}}

    for node in graph.nodes:
        if node.op != "call_function" or not hasattr(node.target, "namespace"):
            continue
        operands = [n.meta["val"] for n in node.all_input_nodes]
        if node.target is COLLECTIVES.wait_tensor.default or getattr(node.target, "is_view", False):
            continue
        if node.target.namespace == "_c10d_functional":
            key = (str(node.target), operands[0].nbytes)
            if key not in times:
                times[key] = rng.choice((0.25, 0.5, 1.0, 2.0))
                rows["collectives"].append({"op": key[0], "group_size": RANKS, "bytes": key[1], **statistics(times[key])})
        else:
            operands = [n.meta["val"] for n in node.args if isinstance(n, torch.fx.Node)]
            key = (str(node.target), describe(operands))
            if key not in times:
                times[key] = rng.choice((0.0, 0.0, 0.125, 0.5)) if "mm" not in key[0] else rng.choice((0.25, 0.5, 1.0, 3.0))
                rows["ops"].append({"op": key[0], "operands": key[1], **statistics(times[key])})
        by_node[node] = times[key]
    costs = {"format": "epweave costs 1", "unit": "microseconds", "measured_on": {}, "warm_up": 0, "repeat": 1, "ranks": 1}
    return by_node, {**costs, **rows}


def draw_knobs(rng):
    kib = 1 / 2**20
    return {
        "max_in_flight_gb": rng.choice((5, 8 * kib, 16 * kib, 40 * kib)),
        "max_compute_pre_fetch": rng.choice((200, 3, 1)),
        "max_coll_distance": rng.choice((200, 4, 1)),
        "compute_overlap_multipler": rng.choice((1.0, 0.5)),
        "max_memory_increase_gb": rng.choice((1.0, None, 10 * kib, 0.0)),
        "max_memory_increase_ratio": rng.choice((0.05, None)),
        "max_off_bucket_gb": rng.choice((0.5, None, 8 * kib, 20 * kib)),
        "prioritize_bucketing_during_scheduling": rng.random() < 0.7,
    }


def order_of_reference(module, estimate, knobs, discounts, mode):
    config.test_configs.assume_bucketing_reduces_latency = discounts
    OverlapScheduler(module, collective_bucketing=mode is not None, bucket_mode=mode, insert_overlap_deps=False,
                     custom_runtime_estimation=estimate, collective_estimator="analytical", compute_estimator="analytical",
                     **{"max_in_flight_gb": 5, "max_compute_pre_fetch": 200, "max_coll_distance": 200,
                        "compute_overlap_multipler": 1.0, **knobs}).run()
    return module.graph


def describe_nodes(graph, given):
    """Each node with what it takes: by name if the given step has it, else by op and place among those that were written."""
    labels, nodes, written = {}, [], 0
    for node in graph.nodes:
        labels[node] = node.name if node.name in given or node.op == "output" else f"{node.target}#{written}"
        written += node.name not in given
    for node in graph.nodes:
        taken = []
        torch.fx.node.map_arg((node.args, node.kwargs), lambda n: taken.append(labels[n]))
        nodes.append(f"{labels[node]}({', '.join(taken)})")
    return nodes


def order_of_ours(epweave, folder, knobs, discounts, mode):
    words = {True: "true", False: "false", None: "none"}
    knobs = {**knobs, **({"collective_bucketing": True, "bucket_mode": mode} if mode else {})}
    texts = [f"{k}={words[v] if v is None or isinstance(v, bool) else v if isinstance(v, str) else f'{v:.17g}'}" for k, v in knobs.items()]
    texts.append(f"assume_bucketing_reduces_latency={words[discounts]}")
    pipeline = f"schedule{{like=inductor,unpriced=free,costs={folder}/costs.json,knobs=[{','.join(texts)}]}}"
    done = subprocess.run([epweave, "rewrite", f"{folder}/step.epw", "-p", pipeline, "-o", f"{folder}/ours.epw"],
                          capture_output=True, text=True, check=False)
    if "[schedule.bucket-order]" in done.stderr:
        return None
    if done.returncode != 0:
        raise SystemExit(f"{done.stderr}\n{pipeline}")
    return loader.load(f"{folder}/ours.epw").graph


def draw_bucket_knobs(rng):
    return {"bucket_exposed_first": rng.choice((None, False, True)), "bucket_only_internode_comms": rng.random() < 0.1}


def compare(epweave, seed, nodes, groups, mode):
    rng = random.Random(seed)
    step, shapes = make_step(rng, nodes, groups, casts=mode is not None)
    with FakeTensorMode():
        module = make_fx(step)(*[torch.empty(shape, device="cuda") for shape in shapes])
    module.graph.eliminate_dead_code()
    by_node, costs = draw_times(rng, module.graph)
    knobs, discounts = draw_knobs(rng), rng.random() < 0.5
    knobs.update(draw_bucket_knobs(rng) if mode else {})
    if not any(n.target is COLLECTIVES.wait_tensor.default for n in module.graph.nodes):
        return True
    with tempfile.TemporaryDirectory() as folder:
        exporter.export(module, f"{folder}/step.epw")
        pathlib.Path(folder, "costs.json").write_text(json.dumps(costs))
        given = [n.name for n in module.graph.nodes]
        ours = order_of_ours(epweave, folder, knobs, discounts, mode)

    def estimate(node, size):
        return LATENCY_MS if size == 0 and is_launch(node) else by_node.get(node)

    try:
        reference = order_of_reference(module, estimate, knobs, discounts, mode)
    except RuntimeError as error:
        if ours is None and "cyclic extra" in str(error):  # what both refuse
            return True
        raise
    if ours is None:
        print(f"seed {seed}: refused; the reference goes on")
        return False
    ours, reference = describe_nodes(ours, given), describe_nodes(reference, given)
    if ours == reference:
        return True
    at = next(i for i, (a, b) in enumerate(zip(ours, reference)) if a != b)
    print(f"seed {seed}: place {at}: ours {ours[at]}, reference {reference[at]}\n  knobs {knobs}, discounts {discounts}"
          f"\n  given {given}\n  ours {ours}\n  reference {reference}")
    return False


def share_storage(module):
    """Gives what shows another's storage, by its op's schema, that one's recorded storage."""
    storages = {}

    def storages_of(node):
        if node not in storages:
            storages[node] = shown(node)
        return storages[node]

    def shown(node):
        own = GraphAliasTracker.own_storages(node)
        if node.op != "call_function" or node.target is COLLECTIVES.wait_tensor.default:
            return own
        if node.target is operator.getitem:
            listed = node.args[0]
            if getattr(listed.target, "_schema", None) and returns_view(listed.target):
                return storages_of(listed)
            node.meta["val"] = listed.meta["val"][node.args[1]]
            return GraphAliasTracker.own_storages(node)
        schema = getattr(node.target, "_schema", None)
        if schema is None or node.target.namespace == "_c10d_functional" or not shows_operand(node):
            return own
        by_name = {a.name: node.kwargs.get(a.name, node.args[i] if i < len(node.args) else None)
                   for i, a in enumerate(schema.arguments)}
        of_same_set = [a for a in schema.arguments  # of a list's views the schema says less
                       if a.alias_info and a.alias_info.before_set & schema.returns[0].alias_info.before_set]
        shown_ones = of_same_set or [a for a in schema.arguments if a.alias_info]
        operand = by_name[shown_ones[0].name]
        return storages_of(operand) if isinstance(operand, torch.fx.Node) else own

    def returns_view(target):
        return bool(target._schema.returns) and target._schema.returns[0].alias_info is not None

    def shows_operand(node):
        if node.target is not torch.ops.aten.reshape.default:
            return returns_view(node.target)
        x = node.args[0].meta["val"]
        laid_out = torch.empty_strided(x.shape, x.stride(), device="meta")
        return laid_out.reshape(node.meta["val"].shape).untyped_storage()._cdata == laid_out.untyped_storage()._cdata

    for node in module.graph.nodes:
        storages_of(node)
    GraphAliasTracker._get_output_storages = staticmethod(storages_of)


def keep_writes_in_order(module):
    """Makes what reads or writes storage an input of what must stay behind it, which the reference does not know."""
    written, read = {}, {}
    for node in module.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is None or node.target.is_view or node.target.namespace == "_c10d_functional":
            continue
        writes = set()
        for i, a in enumerate(schema.arguments):
            value = node.kwargs.get(a.name, node.args[i] if i < len(node.args) else None)
            if a.alias_info and a.alias_info.is_write:
                for each in value if isinstance(value, (list, tuple)) else [value]:
                    writes |= set(GraphAliasTracker._get_output_storages(each)) if each else set()
        reads = set().union(*(GraphAliasTracker._get_output_storages(n) for n in node.all_input_nodes)) - writes
        for storage in reads:
            if storage in written:
                require(written[storage], node)
            read.setdefault(storage, []).append(node)
        for storage in writes:
            for before in [*read.pop(storage, ()), *([written[storage]] if storage in written else ())]:
                require(before, node)
            written[storage] = node


def keep_reads_behind_copies(module):
    """The same for the host's reads of a non-blocking copy: they stay behind the blocking copy that completed it."""
    opened, copies = [], {}
    for node in module.graph.nodes:
        for read in node.all_input_nodes:
            for storage in GraphAliasTracker._get_output_storages(read):
                if storage in copies and copies[storage][1] and not getattr(node.target, "is_view", False) \
                        and node.target is not operator.getitem:
                    require(*copies[storage])
                    require(copies[storage][1], node)
        if str(node.kwargs.get("device")) != "cpu" or node.all_input_nodes[0].meta["val"].device.type == "cpu":
            continue
        if node.kwargs.get("non_blocking"):
            for storage in GraphAliasTracker._get_output_storages(node):
                copies[storage] = [node, None]
                opened.append(storage)
        else:
            while opened:
                copies[opened.pop()][1] = node


def keep_cuts_behind_copies():
    """The same for what its bucketer writes: parameters are views of buffers that a copy fills, and no input of theirs says so."""
    insert = bucketing._insert_fn_trace_before_node

    def insert_with_inputs(*args):
        replacements, nodes = insert(*args)
        for copy in nodes:
            if copy.target is not torch.ops.aten.split_with_sizes_copy.out:
                continue
            for result in replacements.values():
                REQUIRED.setdefault(result, {})[copy] = None
        return replacements, nodes

    bucketing._insert_fn_trace_before_node = insert_with_inputs


def require(before, after):
    after._input_nodes.setdefault(before)
    before.users.setdefault(after)
    REQUIRED.setdefault(after, {})[before] = None


def sort_by_required():
    """What was required holds while the bucketer sorts, for what stands in place of merged nodes, too."""
    transfer = AugmentedGraphHelper.transfer_erased_node_deps

    def list_inputs(node, additional):
        inputs = OrderedSet()
        torch.fx.node.map_arg((node.args, node.kwargs), inputs.add)
        inputs.update(REQUIRED.get(node, ()))
        inputs.update(additional.get(node, ()))
        return inputs

    def transfer_required(graph, erased):
        transfer(graph, erased)
        required = {}
        for after, befores in REQUIRED.items():
            after = erased.get(after, after)
            for before in befores:
                before = erased.get(before, before)
                if before is not after:
                    required.setdefault(after, {})[before] = None
        REQUIRED.clear()
        REQUIRED.update(required)

    graph_deduplication._get_flat_args_unique = list_inputs
    AugmentedGraphHelper.transfer_erased_node_deps = transfer_required


def is_compute(node):
    return overlap_scheduling.is_compute_node(node)


def is_launch(node):
    return getattr(node.target, "namespace", "") == "_c10d_functional"


def compare_graph(epweave, path, mode):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([epweave, "simulate", path, "--trace", f"{folder}/trace.json"], capture_output=True, check=True)
        events = json.loads(pathlib.Path(folder, "trace.json").read_text())["traceEvents"]
        knobs = f",knobs=[collective_bucketing=true,bucket_mode={mode}]" if mode else ""
        subprocess.run([epweave, "rewrite", path, "-p", f"schedule{{like=inductor{knobs}}}", "-o", f"{folder}/ours.epw"],
                       capture_output=True, check=True)
        ours = loader.load(f"{folder}/ours.epw").graph
    times = {e["name"]: e["dur"] / 1000 for e in events if e["ph"] == "X" and e["cat"] != "wait"}
    module = loader.load(path)
    share_storage(module)
    keep_writes_in_order(module)
    keep_reads_behind_copies(module)
    node_runtime_estimation._log_collective_benchmarks = lambda *_, **__: None  # it asks for the groups themselves
    overlap_scheduling.get_group_name = overlap_preserving_bucketer.get_group_name = lambda node: str(node.args[-1])
    dist.distributed_c10d._resolve_process_group, dist.get_rank = lambda name: name, lambda *_: 0

    def estimate(node, size):
        if size == 0:
            return LATENCY_MS
        return times.get(node.name, 0.0 if is_launch(node) or is_compute(node) else None)

    given = [n.name for n in module.graph.nodes]
    ours = describe_nodes(ours, given)
    reference = describe_nodes(order_of_reference(module, estimate, {}, True, mode), given)
    at = next((i for i, (a, b) in enumerate(zip(ours, reference)) if a != b), None)
    print(f"{path}: {sum(a != b for a, b in zip(ours, reference))} of {len(ours)} places differ", end="")
    print("" if at is None else f"; place {at}: ours {ours[at:at + 6]}, reference {reference[at:at + 6]}, "
          f"before {ours[at - 6:at]}")
    return at is None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epweave", required=True)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=60)
    parser.add_argument("--buckets", choices=["default", "custom_ops", "custom_ops_multidtype", "coalesced"], help="bucket_mode")
    parser.add_argument("--graphs", nargs="+", default=[])
    args = parser.parse_args()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    keep_cuts_behind_copies()
    sort_by_required()
    if args.graphs:
        return 0 if all([compare_graph(args.epweave, path, args.buckets) for path in args.graphs]) else 1
    groups = [dist.new_group(list(range(RANKS))).group_name for _ in range(3)]
    different = [s for s in range(args.first, args.first + args.seeds) if not compare(args.epweave, s, args.nodes, groups, args.buckets)]
    print(f"{args.seeds - len(different)} of {args.seeds} orders are the reference's"
          + (f"; not those of seeds {different}" if different else ""))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
