#!/usr/bin/env python3
"""Processor seconds of epweave.load and epweave.export, beside what torch alone needs to build the same graph.

    scripts/measure_exchange.py GRAPH...

`torch` is the floor of `load`: an FX graph of as many nodes, made by Graph.create_node with the same arguments, a
FakeTensor for each recorded tensor, and the GraphModule's code. Each figure is the least of --repeat runs in one process.
"""
import argparse
import os
import pathlib
import sys
import tempfile
import time


def least_seconds(repeat: int, work) -> float:
    out = []
    for _ in range(repeat):
        began = time.process_time()
        work()
        out.append(time.process_time() - began)
    return min(out)


def build_with_torch(module):
    """The floor: the module's graph made again by torch, with fresh fake tensors."""
    import torch
    from torch._subclasses import FakeTensor

    graph, copies = torch.fx.Graph(), {}

    def copy_value(x):
        if not isinstance(x, FakeTensor):
            return x
        meta = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
        return FakeTensor(x.fake_mode, meta, x.fake_device)

    for node in module.graph.nodes:
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), copies.__getitem__)
        copies[node] = new = graph.create_node(node.op, node.target, args, dict(kwargs), node.name, node.type)
        new.meta = dict(node.meta)
        if "val" in new.meta:
            new.meta["val"] = torch.utils._pytree.tree_map(copy_value, new.meta["val"])
    return torch.fx.GraphModule(module, graph)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", metavar="GRAPH", help="graph files")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each, of which the least counts (default 3)")
    options = parser.parse_args()
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
    import epweave  # behind the options: --help needs no PyTorch
    print(f"{'nodes':>7}  {'load':>6}  {'torch':>6}  {'export':>6}  seconds")
    with tempfile.TemporaryDirectory() as folder:
        for graph in options.graphs:
            module = epweave.load(graph)
            load = least_seconds(options.repeat, lambda: epweave.load(graph))
            floor = least_seconds(options.repeat, lambda: build_with_torch(module))
            export = least_seconds(options.repeat, lambda: epweave.export(module, os.path.join(folder, "out.epw")))
            print(f"{len(module.graph.nodes):7}  {load:6.2f}  {floor:6.2f}  {export:6.2f}  {os.path.basename(graph)}",
                  flush=True)


if __name__ == "__main__":
    main()
