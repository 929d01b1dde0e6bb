"""The two graphs of a partition, and one graph that runs them one after the other."""
from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .errors import GraphFileError, UsageError
from .exporter import FILE_FACTS
from .files import read_file
from .programs import graph_file, run

if TYPE_CHECKING:
    from .kinds import Graph, GraphModule, Path, Proof


@dataclasses.dataclass
class Halves:
    """A joint graph in two: `forward` and `backward` are paths of files, `report` the JSON of `epweave partition`.

    The files live as long as this object unless `partition` was given paths.
    """

    forward: str
    backward: str
    report: dict = dataclasses.field(repr=False)
    inputs: list[str] = dataclasses.field(repr=False)  # of the joint graph: placeholders, and the nodes that it returns
    outputs: list[str | None] | tuple[str | None, ...] = dataclasses.field(repr=False)
    tangents: tuple[str, ...] = ()  # inputs that only backward is given, as `partition` was told

    def to_fx(self, *, device: str | None = None) -> tuple[GraphModule, GraphModule]:
        """Both as torch.fx.GraphModules (see `load`). `inputs` and `outputs` in `module.meta["epweave"]` are the roles by
        which they are wired."""
        from .loader import load
        return load(self.forward, device=device), load(self.backward, device=device)

    def verify(self, graph: Graph, *, timeout: float | None = None) -> Proof:
        """A `Proof` that forward, then backward, computes the joint graph: `epweave verify G --fwd F --bwd B`."""
        from .api import Proof
        with graph_file(graph) as joint:
            report, _ = run("epweave", "verify", joint, "--fwd", self.forward, "--bwd", self.backward,
                            *_tangent_words(self.tangents), "-q", accept=(0, 1), timeout=timeout)
        return Proof(report["ok"], report)

    def join(self, *, device: str | None = None) -> GraphModule:
        """One torch.fx.GraphModule with inputs and outputs of the joint graph: forward, then backward."""
        return join_halves(*self.to_fx(device=device), self.inputs, self.outputs)


def _tangent_words(names: Sequence[str]) -> list[str]:
    return ["--tangents", ",".join(names)] if names else []


def partition(graph: Graph, policy: str = "exact", *, budget: str | float | None = None, reshard: str | None = None,
              tangents: Sequence[str] = (), forward: Path | None = None, backward: Path | None = None,
              timeout: float | None = None) -> Halves:
    """Split a joint graph (a path, a torch.fx.GraphModule, a `Step` or a `Result`): `epweave partition`.

    `tangents` names inputs that only backward is given, where their role is not `tangent` (the gradients that the next
    stage of a pipeline sends). The halves are written to `forward` and `backward`, else to temporary files.
    """
    tangents = (tangents,) if isinstance(tangents, str) else tuple(tangents)
    folder = tempfile.mkdtemp(prefix="epweave-")
    try:
        paths = [os.fspath(path or os.path.join(folder, name))
                 for path, name in ((forward, "forward.epw"), (backward, "backward.epw"))]
        report = os.path.join(folder, "report.json")
        words = ["--fwd", paths[0], "--bwd", paths[1], "--report", report, "-q", *_policy_words(policy, budget)]
        words += ["--reshard", str(reshard)] if reshard is not None else []
        words += _tangent_words(tangents)
        with graph_file(graph) as joint:
            inputs, outputs = _interface(read_file(joint))
            run("epweave", "partition", joint, *words, timeout=timeout)
        with open(report, encoding="utf-8") as f:
            halves = Halves(*paths, json.load(f), inputs, outputs, tangents)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(halves, shutil.rmtree, folder, ignore_errors=True)
    return halves


def _policy_words(policy: str, budget: str | float | None) -> list[str]:
    return ["--policy", str(policy), *(["--budget", str(budget)] if budget is not None else [])]


def split_policy(text: str) -> tuple[str, str | None]:
    """Policy and budget of POLICY or POLICY:BUDGET."""
    policy, _, budget = text.partition(":")
    return policy, budget or None


def check_policy(text: str, what: str) -> None:
    """UsageError, which calls it `what`, for POLICY or POLICY:BUDGET that no graph would be split by."""
    halves = ("--fwd", "forward.epw", "--bwd", "backward.epw")  # which are not written
    try:
        run("epweave", "partition", os.devnull, *halves, *_policy_words(*split_policy(text)), "-q")
    except UsageError as error:
        raise error.within(what) from None
    except GraphFileError:  # the program reads the graph after its options
        pass


def _interface(message: dict) -> tuple:
    """Names of the placeholders, and of the nodes that the step returns; None for what is no node."""
    nodes = next(graph for graph in message["graphs"] if not graph.get("name"))["nodes"]
    kind, result = nodes[-1]["args"][0]
    items = result if kind in ("list", "tuple") else [(kind, result)]
    if other := [item for item, _ in items if item not in ("node", "none")]:
        raise GraphFileError(f"the step returns a constant ({other[0]}), which no half of a partition has")
    names = [value if item == "node" else None for item, value in items]
    return ([node["name"] for node in nodes if node.get("kind") == "PLACEHOLDER"],
            tuple(names) if kind == "tuple" else names)


def _roles(module, key: str, count: int) -> list[dict]:
    roles = module.meta.get(FILE_FACTS, {}).get(key, [])
    if len(roles) != count:
        raise GraphFileError(f"{len(roles)} roles for {count} {key}: the graph is no half of `epweave partition`")
    return roles


def _returned(graph) -> list:
    output = next(node for node in reversed(graph.nodes) if node.op == "output")
    return list(output.args[0]) if isinstance(output.args[0], (list, tuple)) else [output.args[0]]


def _ones_like(graph, tangent):
    """The gradient of a loss: ones."""
    import torch
    value = tangent.meta["val"]
    if any(not isinstance(size, int) for size in value.shape):
        raise GraphFileError(f"tangent {tangent.name} has a size that is no number: the caller must give it")
    node = graph.call_function(torch.ops.aten.ones.default, (list(value.shape),),
                               {"dtype": value.dtype, "device": value.device})
    node.meta["val"] = value
    return node


class _Joiner:
    """Copies two halves into one graph. Values have their names in the joint graph."""

    def __init__(self, inputs: list[str]):
        import torch
        self.graph, self.root = torch.fx.Graph(), torch.nn.Module()
        self.inputs = {name: self.graph.placeholder(name) for name in inputs}
        self.saved, self.results = {}, {}
        self.input_roles = {}
        self.output_roles: dict[str, list[dict]] = {}  # a node may be returned several times: as a loss, as a mesh

    def append(self, half) -> None:
        placeholders = [node for node in half.graph.nodes if node.op == "placeholder"]
        given = {node: self.argument(node, role)
                 for node, role in zip(placeholders, _roles(half, "inputs", len(placeholders)))}
        for node in half.graph.nodes:
            if node.op == "get_attr":
                self.take_attribute(half, node.target)
        self.graph.graph_copy(half.graph, given)
        returned = _returned(half.graph)
        for node, role in zip(returned, _roles(half, "outputs", len(returned))):
            value = given.get(node)
            if role.get("role") == "saved":
                self.saved[role["fqn"]] = value
            elif node is not None:
                self.results.setdefault(node.name, value)
                self.output_roles.setdefault(node.name, []).append(role)

    def argument(self, node, role: dict):
        if role.get("role") == "saved":
            return self.saved[role["fqn"] if "fqn" in role else role["name"]]
        if role.get("role") == "tangent" and role["name"] not in self.inputs:
            return _ones_like(self.graph, node)
        value = self.inputs[role["name"]]
        self.input_roles.setdefault(role["name"], role)
        if not value.meta:
            value.meta = dict(node.meta)
        return value

    def take_output_role(self, name: str | None) -> dict:
        """The role of the next time that the value is returned."""
        roles = self.output_roles.get(name)
        return roles.pop(0) if roles else {"role": "other"}

    def take_attribute(self, half, target: str) -> None:
        import torch
        from .operators import attribute_at
        value, root = attribute_at(half, target), self.root
        *owners, last = target.split(".")
        for owner in owners:
            if not hasattr(root, owner):
                root.add_module(owner, torch.nn.Module())
            root = getattr(root, owner)
        if hasattr(root, last):
            return
        if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
            root.register_buffer(last, value)
        else:
            setattr(root, last, value)


def join_halves(forward, backward, inputs: list[str], outputs):
    """The torch.fx.GraphModule that runs `forward`, then `backward`, wired by their roles.

    `inputs` and `outputs` name the placeholders of the joint graph and what it returns. A tangent that is no input of
    the joint graph is ones: the gradient of a loss inside.
    """
    import torch
    joiner = _Joiner(inputs)
    try:
        joiner.append(forward)
        joiner.append(backward)
    except KeyError as error:
        raise GraphFileError(f"{error.args[0]} is neither an input of the joint graph nor saved by the forward half: the"
                             " halves are of different graphs") from None
    values = {None: None, **joiner.inputs, **joiner.results}
    if missing := [name for name in outputs if name not in values]:
        raise GraphFileError(f"no half returns {missing[0]}, which the joint graph does: the halves are of different graphs")
    joiner.graph.output(type(outputs)(values[name] for name in outputs))
    joiner.graph.lint()
    module = torch.fx.GraphModule(joiner.root, joiner.graph)
    facts = forward.meta[FILE_FACTS]
    module.meta[FILE_FACTS] = {
        **{key: facts[key] for key in ("info", "process_groups") if key in facts},
        "inputs": [joiner.input_roles.get(name, {"name": name, "role": "user"}) for name in inputs],
        "outputs": [joiner.take_output_role(name) for name in outputs]}
    return module
