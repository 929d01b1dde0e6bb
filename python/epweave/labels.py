"""What passes read of a traced graph beyond its calls: modules, direction, labels of token exchanges."""
from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .errors import UsageError
from .operators import short_frame

if TYPE_CHECKING:
    from .kinds import GraphModule

MODULE = "module_fqn"
TOKENS = "EP_token_exchange"
COUNTS = "EP_token_count_exchange"
COPIES = "EP_token_count_sync"
_LABELS = ("EP", TOKENS, "EP_token_exchange_wait", COUNTS, COPIES)


def require_graph(x) -> None:
    """Raises UsageError unless `x` has a torch.fx.Graph, as a GraphModule has."""
    import torch
    if not isinstance(getattr(x, "graph", None), torch.fx.Graph):
        raise UsageError(f"{type(x).__name__} is not a graph",
                         remedy="give a torch.fx.GraphModule; epweave.trace makes one of a model's training step")


def _graphs(module) -> Iterator:
    """The graph of a GraphModule and those of the graph modules inside."""
    import torch
    for x in module.modules():
        if isinstance(x, torch.fx.GraphModule):
            yield x.graph


def module_of(node) -> str:
    """The path of the module that the node belongs to, or ""."""
    known = (node.meta.get("custom") or {}).get(MODULE)
    if known:
        return known
    stack = node.meta.get("nn_module_stack")
    return _clean(list(stack.values())[-1][0]) if stack else ""


def _clean(path: str) -> str:
    """`L['self'].layers.0` and `getattr(L['self'].layers, '0')`, as dynamo writes them, as `layers.0`."""
    path = re.sub(r"""\[['"]?([^'"\]]+)['"]?\]""", r".\1", re.sub(r"getattr\((.+), '(\w+)'\)", r"\1.\2", path))
    path = re.sub(r"^L\.self\.?|^self\.?", "", path).replace("_modules.", "")
    return "" if path.startswith("_empty_nn_module_stack") else path


def is_backward(node) -> bool:
    return bool(node.meta.get("autograd_backward")) or node.meta.get("partitioner_tag") == "is_backward"


def _set(node, key: str, value: str) -> None:
    """A copy: nodes that were traced under one annotation share its dictionary."""
    node.meta["custom"] = {**(node.meta.get("custom") or {}), key: value}


def _find_forward(module) -> dict[int, object]:
    """The forward node of each autograd node: the first with its number; later ones only follow it."""
    first: dict[int, object] = {}
    for graph in _graphs(module):
        for node in graph.nodes:
            if node.op == "call_function" and "seq_nr" in node.meta and not is_backward(node):
                first.setdefault(node.meta["seq_nr"], node)
    return first


def _find_exchanges(module) -> dict[int, object]:
    """The exchange of tokens that forward did in each autograd node: an autograd.Function may do something else first."""
    first: dict[int, object] = {}
    for graph in _graphs(module):
        for node in graph.nodes:
            if _is_all_to_all(node) and _is_floating(node) and "seq_nr" in node.meta and not is_backward(node):
                first.setdefault(node.meta["seq_nr"], node)
    return first


def _is_all_to_all(node) -> bool:
    return node.op == "call_function" and str(node.target) == "_c10d_functional.all_to_all_single.default"


def _is_floating(node) -> bool:
    import torch
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _is_wait(node) -> bool:
    return node.op == "call_function" and str(node.target) == "_c10d_functional.wait_tensor.default"


def _is_copy_to_host(node) -> bool:
    import torch
    value = node.meta.get("val")
    is_copy = node.op == "call_function" and str(node.target) == "aten._to_copy.default"
    return is_copy and isinstance(value, torch.Tensor) and value.device.type == "cpu"


def _may_have(node, key: str) -> bool:
    """Whether a node gets its forward node's label: of an exchange only the exchange and its wait do."""
    if key == COPIES:
        return _is_copy_to_host(node)
    return key not in _LABELS[1:] or _is_all_to_all(node) or (_is_wait(node) and _is_all_to_all(node.args[0]))


def _is_labelled(node) -> bool:
    custom = node.meta.get("custom") or {}
    return any(key in custom for key in _LABELS[1:])


def _pair_exchanges(nodes: list) -> dict:
    """dispatch or combine for each exchange of floating-point numbers that has a partner.

    A combine sends back what its dispatch has received: its split sizes are the dispatch's, the other way round. Where
    none are given, the two exchanges of a module are its dispatch and its combine, in this order.
    """
    found, open_ = {}, []
    even: dict[str, list] = {}
    for node in nodes:
        received, sent = node.args[1], node.args[2]
        if not received and not sent:
            even.setdefault(module_of(node), []).append(node)
            continue
        partners = [x for x in open_ if (x.args[2], x.args[1], x.args[3]) == (received, sent, node.args[3])]
        for x in partners:
            found[x], found[node] = "dispatch", "combine"
            open_.remove(x)
        if not partners:
            open_.append(node)
    for pair in even.values():
        if len(pair) == 2:
            found[pair[0]], found[pair[1]] = "dispatch", "combine"
    return found


def _label(exchange, key: str, value: str) -> None:
    for x in (exchange, *(u for u in exchange.users if _is_wait(u))):
        _set(x, key, value)


def _label_forward(graph) -> None:
    """Labels exchanges of tokens and counts, and their waits."""
    exchanges = [n for n in graph.nodes if _is_all_to_all(n) and not is_backward(n) and not _is_labelled(n)]
    tokens = _pair_exchanges([n for n in exchanges if _is_floating(n)])
    for node in exchanges:
        key, value = (TOKENS, tokens.get(node)) if _is_floating(node) else (COUNTS, "dispatch")
        if value is not None:
            _label(node, key, value)


def _facts(exchange) -> tuple:
    """What is the same of an exchange and of the one that computes it again; sizes that come from data are other symbols."""
    sizes = [tuple(x if isinstance(x, int) else None for x in sizes or ()) for sizes in exchange.args[1:3]]
    return _is_floating(exchange), *sizes


def _may_compute(module: str, trace: str, forward) -> bool:
    """Whether an exchange of that module and stack trace may compute `forward` again.

    Its stack begins at the checkpoint and ends as the other's does; it is in no module where the checkpoint has a function.
    """
    other, known = forward.meta.get("stack_trace") or "", module_of(forward)
    if not trace:
        return not other and module == known
    return other.endswith(trace) and (not module or not known or module == known)


def _is_made_by_own_lines(node) -> bool:
    line = short_frame(node.meta.get("stack_trace") or "")
    return line != "" and not line.startswith(os.path.join("torch", ""))


def _seq_nr(node) -> int:
    return node.meta.get("seq_nr", -1)


def _find_computed(nodes: list, partners: list) -> dict:
    """Which of `partners` each of `nodes` computes again, where that is certain: where each partner is computed once.

    The nodes of one `seq_nr` are one checkpoint's: those that its autograd node, the last that needs them, asks for.
    """
    runs: dict[int, list] = {}
    for node in nodes:
        runs.setdefault(_seq_nr(node), []).append(node)
    found = {}
    for seq_nr, run in runs.items():
        before = [x for x in partners if 0 <= _seq_nr(x) <= seq_nr]
        found.update(zip(run, before[-len(run):]))
    return found if len(found) == len(nodes) and set(found.values()) == set(partners) else {}


def _labels_of(exchange) -> dict:
    return {key: value for key, value in (exchange.meta.get("custom") or {}).items() if key in (TOKENS, COUNTS)}


def _label_recomputed(graph) -> set:
    """Labels backward's exchanges that compute forward again as those that they compute; returns them and their waits.

    An exchange that is computed again is made by the same lines of its module. That of a gradient is made by autograd, or by
    the lines of a `backward`. Where a graph keeps no lines, one in a module that no exchange's autograd node asks for is
    computed again. Those that cannot be told apart have no label.
    """
    forward: dict[tuple, list] = {}
    again: dict[tuple, list] = {}
    nodes = [n for n in graph.nodes if _is_all_to_all(n)]
    asked = {_seq_nr(n) for n in nodes if not is_backward(n)}
    for node in nodes:
        trace = node.meta.get("stack_trace") or ""
        if not is_backward(node):
            forward.setdefault(_facts(node), []).append(node)
        elif not _is_labelled(node) and (_is_made_by_own_lines(node) if trace else
                                         module_of(node) and _seq_nr(node) not in asked):
            again.setdefault((_facts(node), module_of(node), trace), []).append(node)
    found = set()
    for (facts, module, trace), nodes in again.items():
        partners = [x for x in forward.get(facts, ()) if _may_compute(module, trace, x)]
        computed = _find_computed(nodes, partners)
        are_alike = trace and all(_labels_of(x) == _labels_of(partners[0]) for x in partners)
        for node in nodes if partners else ():
            if any(_seq_nr(x) == _seq_nr(node) for x in partners):
                continue  # its gradient, or its own node asks for it again: that has its label in either case
            partner = computed.get(node, partners[0] if are_alike else None)
            for key, value in _labels_of(partner).items() if partner else ():
                _label(node, key, value)
            found.update((node, *(u for u in node.users if _is_wait(u))))
    return found


def _forget_context(node) -> None:
    """Autograd adds gradients up in no module's name: such a call has the context of whatever forward traced last."""
    for key in ("custom", "nn_module_stack", "stack_trace", "seq_nr"):
        node.meta.pop(key, None)


def annotate(graph_module: GraphModule, *, label_exchanges: bool = True) -> GraphModule:
    """Write into the metadata of a traced joint graph what passes read, where it is not there yet; returns the graph.

    Module paths come from `nn_module_stack`, the direction of AOTAutograd's joint graphs from `partitioner_tag`, and
    a backward node gets module, labels and source line of its forward node: the one with its `seq_nr`; a sum of gradients
    has none. All-to-alls of forward are labelled: one of integers exchanges counts; one of floating-point numbers
    dispatches tokens, or combines them where its split sizes are those of an earlier one, the other way round. Those that
    backward computes again (torch.utils.checkpoint) have the labels of the ones that they compute.
    """
    require_graph(graph_module)
    for graph in _graphs(graph_module):
        for node in graph.nodes:
            if node.op == "call_function" and node.meta.get("is_gradient_acc"):
                _forget_context(node)
            path = module_of(node) if node.op in ("call_function", "get_attr") else ""
            if path and not (node.meta.get("custom") or {}).get(MODULE):
                _set(node, MODULE, path)
            if is_backward(node) and not node.meta.get("autograd_backward"):
                node.meta["autograd_backward"] = True
        if label_exchanges:
            _label_forward(graph)
    forward, exchanges = _find_forward(graph_module), _find_exchanges(graph_module)
    for graph in _graphs(graph_module):
        recomputed = _label_recomputed(graph) if label_exchanges else set()
        for node in graph.nodes:
            origin = forward.get(node.meta.get("seq_nr")) if is_backward(node) else None
            if node in recomputed:
                if origin is not None and not module_of(node) and module_of(origin):
                    _set(node, MODULE, module_of(origin))
                continue
            if origin is not None and (_is_all_to_all(node) or _is_wait(node)):
                origin = exchanges.get(node.meta["seq_nr"], origin)
            if origin is None:
                continue
            for key, value in (origin.meta.get("custom") or {}).items():
                if key not in (node.meta.get("custom") or {}) and _may_have(node, key):
                    _set(node, key, value)
            for key in ("nn_module_stack", "stack_trace"):
                if key in origin.meta:
                    node.meta[key] = origin.meta[key]
    return graph_module
