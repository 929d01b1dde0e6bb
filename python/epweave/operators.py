"""Placeholders of live objects, and operators by name."""
from __future__ import annotations

import functools
import importlib
import os
import re
import sys

from .errors import GraphFileError


class MeshPlaceholder:
    """Stands for a device mesh in a loaded graph; exports as the mesh it stands for."""

    def __init__(self, axes, shape, ranks, device_type):
        self.axes, self.shape, self.ranks, self.device_type = axes, shape, ranks, device_type

    def __eq__(self, other):
        return isinstance(other, MeshPlaceholder) and vars(self) == vars(other)

    def __hash__(self):
        return hash((tuple(self.shape), self.device_type))

    def __repr__(self):
        return f"MeshPlaceholder({self.axes}, {self.shape}, {self.device_type!r})"


class ProcessGroupPlaceholder:
    """Stands for a process group of that name where torch.distributed does not know one."""

    def __init__(self, group_name: str):
        self.group_name = group_name

    def __eq__(self, other):
        return isinstance(other, ProcessGroupPlaceholder) and vars(self) == vars(other)

    def __hash__(self):
        return hash(self.group_name)

    def __repr__(self):
        return f"ProcessGroupPlaceholder({self.group_name!r})"


class OpaquePlaceholder:
    """Stands for a recorded value that the exporter could only describe."""

    def __init__(self, text: str, class_name: str):
        self.text, self.class_name = text, class_name

    def __eq__(self, other):
        return isinstance(other, OpaquePlaceholder) and vars(self) == vars(other)

    def __hash__(self):
        return hash(self.text)

    def __repr__(self):
        return self.text


# Where operators are registered that torch itself does not register when it is imported.
_REGISTERED_BY = {
    "torchtitan": ("torchtitan.ops.scatter_add", "torchtitan.experiments.graph_trainer.passes"),
    "bucketing": ("torch._inductor.fx_passes.bucketing",),
    "ao": ("torch._functorch._activation_offloading.offload_ops",),
    "_dtensor": ("torch.distributed.tensor",),
    "device_mesh": ("torch.distributed._ops.device_mesh",),
    "coor": ("torch.fx.experimental.proxy_tensor",),
    "higher_order": ("torch._higher_order_ops",),
}
# Frames of these files, and of torch, are machinery around the user's code in a stack trace.
_TRACER_FILES = ("graph_trainer/make_fx_tracer.py", "graph_trainer/simple_fsdp.py",
                 "graph_trainer/trainer.py", "epweave/tracing.py")


@functools.cache
def short_frame(trace: str) -> str:
    """`file:line in function: code` of the last frame of the user's code in a stack trace."""
    import torch

    frames = re.findall(r'File "([^"]+)", line (\d+), in (\S+)\n\s*(.*)', trace)
    if not frames:
        return trace
    not_own = ("<", os.path.join(os.path.dirname(torch.__file__), ""))
    own = [f for f in frames if not f[0].startswith(not_own) and not f[0].endswith(_TRACER_FILES)]
    path, line, function, code = (own or frames)[-1]
    roots = sorted((os.path.join(p, "") for p in sys.path if p), key=len, reverse=True)
    path = next((path[len(root):] for root in roots if path.startswith(root)), path)
    return f"{path}:{line} in {function}: {code.strip()}"


# What files say that stack traces show, where this machine would say something else: a graph that
# was traced under other folders keeps its lines.
_recorded_sources: dict[str, str] = {}


def record_source(trace: str, source: str) -> None:
    """Of a node that is loaded: what its file has for this stack trace."""
    if source != short_frame(trace):
        _recorded_sources[trace] = source
    else:
        _recorded_sources.pop(trace, None)


def source_of(trace: str) -> str:
    """What the file said that the trace was loaded from; else its `short_frame`."""
    return _recorded_sources.get(trace) or short_frame(trace)


def attribute_at(root, path: str):
    """The attribute of `root` at a dotted path."""
    for part in path.split("."):
        root = getattr(root, part)
    return root


def imported(name: str):
    """The object with the given dotted name, its module imported; None if there is none."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            return attribute_at(importlib.import_module(".".join(parts[:cut])), ".".join(parts[cut:]))
        except (ImportError, AttributeError):
            continue
    return None


def operator_named(name: str):
    """The operator or function that a node's target names; None if it is not registered."""
    import torch

    if name.startswith("higher_order."):
        return torch._ops._higher_order_ops.get(name.removeprefix("higher_order."))
    try:
        if name.endswith(".<packet>"):
            return attribute_at(torch.ops, name.removesuffix(".<packet>"))
        found = attribute_at(torch.ops, name) if name.count(".") == 2 else None
    except (AttributeError, RuntimeError):
        found = None
    return found if isinstance(found, torch._ops.OpOverload) else imported(name)


def find_operator(name: str):
    """Like `operator_named`, but imports what may register it and fails with a remedy."""
    found = operator_named(name)
    modules = _REGISTERED_BY.get(name.split(".")[0], ())
    for module in modules:
        if found is None:
            try:
                importlib.import_module(module)
            except ImportError:
                continue
            found = operator_named(name)
    if found is None:
        remedy = " or ".join(modules) or "the module that defines it"
        raise GraphFileError(f"the operator {name} is not registered; import {remedy} first")
    return found


def name_of_operator(target) -> str | None:
    """The name under which `operator_named` finds `target`; None if there is none."""
    import torch

    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if isinstance(target, torch._ops.OpOverloadPacket):
        return f"{target}.<packet>"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    name = getattr(target, "__qualname__", None) or getattr(target, "__name__", None)
    if not callable(target) or name is None:
        return None
    module = getattr(target, "__module__", None)
    homes = ("operator" if module == "_operator" else module, "builtins", "math", "torch",
             "torch.nn.functional", "torch._C._nn")
    return next((f"{home}.{name}" for home in homes
                 if home and imported(f"{home}.{name}") is target), None)
