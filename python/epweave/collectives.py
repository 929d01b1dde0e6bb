"""Collectives as a graph can hold them: functional ones, whose group is a name."""
from __future__ import annotations

import os
import traceback

from .errors import UsageError
from .labels import module_of
from .operators import attribute_at, source_of

REMEDY = ("call functional collectives: torch.distributed._functional_collectives.all_to_all_single_autograd(x,"
          " output_split_sizes, input_split_sizes, group) in place of dist.all_to_all_single and of"
          " torch.distributed.nn.functional, in an autograd.Function too; likewise all_gather_tensor_autograd,"
          " reduce_scatter_tensor_autograd and all_reduce")


def require_functional_collectives(graph_module) -> None:
    """Raises UsageError where a call takes a process group that is an object (dist.all_to_all_single)."""
    import torch

    def is_object(x) -> bool:
        if isinstance(x, torch.fx.Node):
            return x.op == "get_attr" and isinstance(attribute_at(graph_module, x.target), torch.ScriptObject)
        return isinstance(x, torch.ScriptObject)
    for node in graph_module.graph.nodes:
        if node.op != "call_function" or getattr(node.target, "namespace", "") != "c10d":
            continue
        if any(is_object(x) for x in (*node.args, *node.kwargs.values())):
            trace = node.meta.get("stack_trace")
            source = source_of(trace) if isinstance(trace, str) else None
            raise UsageError(f"{node.target} takes a process group that no graph can hold"
                             f"{f', at {source}' if source else ''}", node=node.name, op=str(node.target),
                             module=module_of(node) or None, source=source, remedy=REMEDY)


def collective_error(error: Exception) -> UsageError | None:
    """What to say where torch.distributed was given tensors of a trace, which its bindings do not take; None of any other error."""
    if not (isinstance(error, TypeError) and "incompatible function arguments" in str(error)):
        return None
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or os.path.basename(frames[-1].filename) != "distributed_c10d.py":
        return None
    user = next((x for x in reversed(frames) if f"{os.sep}torch{os.sep}" not in x.filename), None)
    source = f"{os.path.basename(user.filename)}:{user.lineno} in {user.name}: {user.line}" if user else None
    call = next((x.name for x in reversed(frames) if os.path.basename(x.filename) == "distributed_c10d.py"
                 and x.name != "wrapper"), "a collective")
    return UsageError(f"dist.{call} cannot be traced ({type(error).__name__}){f' at {source}' if source else ''}",
                      source=source, remedy=REMEDY)
