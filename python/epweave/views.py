"""Calls that show or move elements, as those that the op table has."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any


def view_decompositions() -> dict[Any, Callable]:
    """Of pixel shuffles: a reshape, a permutation and a reshape, which is the copy that they make."""
    import torch
    from torch._decomp import get_decompositions
    aten = torch.ops.aten
    return get_decompositions([aten.pixel_shuffle.default, aten.pixel_unshuffle.default])


def drop_restrides(graph_module) -> None:
    """Leave out `as_strided_` that gives other strides to dimensions of extent 1 alone, as a mean over an image has it
    (`adaptive_avg_pool2d(x, 1)` where channels lie innermost): it shows the same elements."""
    def moving(val) -> list[tuple]:
        return [(size, stride) for size, stride in zip(val.shape, val.stride()) if str(size) != "1"]

    graph = graph_module.graph
    for node in list(graph.nodes):
        if str(node.target) != "aten.as_strided_.default":
            continue
        before, after = node.args[0].meta["val"], node.meta["val"]
        is_same = before.shape == after.shape and moving(before) == moving(after)
        if is_same and str(before.storage_offset()) == str(after.storage_offset()):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    graph_module.recompile()


def name_views(graph_module) -> None:
    """`squeeze_` and its like, which change how a tensor shows its memory, as calls that show it so anew: what comes after takes
    their results, as the tracer follows the tensor."""
    import torch
    for node in graph_module.graph.nodes:
        target = node.target
        if not (isinstance(target, torch._ops.OpOverload) and torch.Tag.inplace_view in target.tags
                and target.namespace == "aten" and (name := target._opname.removesuffix("_")) != target._opname):
            continue
        packet = getattr(torch.ops.aten, name, None)
        parameters = [(a.name, str(a.type)) for a in target._schema.arguments]
        for kind in packet.overloads() if packet is not None else ():
            fresh = getattr(packet, kind)
            if fresh.is_view and [(a.name, str(a.type)) for a in fresh._schema.arguments] == parameters:
                node.target = fresh
    graph_module.recompile()
