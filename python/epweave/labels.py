"""What passes read of a traced graph beyond its calls: modules, direction, labels of token exchanges."""
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .errors import UsageError

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
        raise UsageError(f"a {type(x).__name__} is no graph",
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


def _list_unlabelled(graph, *, backward: bool) -> list:
    return [n for n in graph.nodes if _is_all_to_all(n) and is_backward(n) == backward and not _is_labelled(n)]


def _list_recomputed(graph) -> list:
    """Backward's exchanges that compute forward again. Those that compute gradients have the labels of forward's: in a module
    where forward's all have one, or that exchanges integers, which have no gradient, the others compute forward again."""
    exchanges = _list_unlabelled(graph, backward=True)
    forward = [n for n in graph.nodes if _is_all_to_all(n) and not is_backward(n)]
    modules = {module_of(n) for n in forward if _is_labelled(n)} - {module_of(n) for n in forward if not _is_labelled(n)}
    modules |= {module_of(n) for n in exchanges if not _is_floating(n)}
    return [n for n in exchanges if module_of(n) in modules]


def _label_exchanges(exchanges: list) -> None:
    """Labels exchanges of tokens and counts, and their waits."""
    tokens = _pair_exchanges([n for n in exchanges if _is_floating(n)])
    for node in exchanges:
        key, value = (TOKENS, tokens.get(node)) if _is_floating(node) else (COUNTS, "dispatch")
        if value is None:
            continue
        for x in (node, *(u for u in node.users if _is_wait(u))):
            _set(x, key, value)


def _forget_context(node) -> None:
    """Autograd adds gradients up in no module's name: such a call has the context of whatever forward traced last."""
    for key in ("custom", "nn_module_stack", "stack_trace", "seq_nr"):
        node.meta.pop(key, None)


def annotate(graph_module: GraphModule, *, label_exchanges: bool = True) -> GraphModule:
    """Write into the metadata of a traced joint graph what passes read, where it is not there yet; returns the graph.

    Module paths come from `nn_module_stack`, the direction of AOTAutograd's joint graphs from `partitioner_tag`, and
    a backward node gets module, labels and source line of its forward node: the one with its `seq_nr`; a sum of gradients
    has none. All-to-alls of forward are labelled: one of integers exchanges counts; one of floating-point numbers
    dispatches tokens, or combines them where its split sizes are those of an earlier one, the other way round. So are
    those that backward computes again (torch.utils.checkpoint).
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
            _label_exchanges(_list_unlabelled(graph, backward=False))
    forward, exchanges = _find_forward(graph_module), _find_exchanges(graph_module)
    for graph in _graphs(graph_module):
        for node in graph.nodes:
            origin = forward.get(node.meta.get("seq_nr")) if is_backward(node) else None
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
        if label_exchanges:
            _label_exchanges(_list_recomputed(graph))
    return graph_module
