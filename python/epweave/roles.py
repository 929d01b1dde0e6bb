"""What the inputs, outputs and process groups of a step traced by torchtitan stand for."""
from __future__ import annotations

from .calling import PLACEMENTS
from .exporter import live_process_groups
from .subclasses import Layout

USER_INPUTS = ("tokens", "labels", "global_valid_tokens", "extra_kwargs")


def describe_placements(layout) -> dict:
    """How a DTensor lies on its mesh, {} of another class: `placements`, of each axis of the mesh torch's class and its
    fields, [["Shard", 0], ["Replicate"]]; `shard_order`, where axes cut a dimension in another order than their own,
    of each dimension the axes, [[0, [1, 0]]]."""
    from torch.distributed.tensor import DTensor
    if not issubclass(layout.cls, DTensor):
        return {}
    placements, _, order, _ = layout.context if isinstance(layout, Layout) else layout.ctx

    def describe(placement) -> list:
        kind = type(placement).__name__
        values = [getattr(placement, field) for field in PLACEMENTS.get(kind, ())]
        return [kind, *(x if type(x) in (int, str) else str(x) for x in values)]

    described = {"placements": [describe(p) for p in placements]}
    axes = [[entry.tensor_dim, list(entry.mesh_dims)] for entry in order or ()]
    if any(cuts != sorted(cuts) for _, cuts in axes):
        described["shard_order"] = axes
    return described


def expand_role(role: dict, layout) -> list[dict]:
    """One role per plain tensor that a value is made of: several for a wrapper class, whose `layout` is a
    subclasses.Layout or torchtitan's SubclassMeta; None: it is plain."""
    if layout is None:
        return [role]
    shape = [int(e) if type(e) is int else str(e) for e in layout.outer_size]
    out = []

    def walk(meta, prefix, outer):
        placements = describe_placements(meta) or outer
        for name in meta.attrs:
            count, inner = meta.inner_metas[name]
            if inner is not None:
                walk(inner, f"{prefix}{name}.", placements)
            else:
                out.extend({**role, "inner": prefix + name, "wrapper": meta.cls.__name__,
                            "global_shape": shape, **placements} for _ in range(count))

    walk(layout, "", {})
    return out


def _expand(role: dict, layouts: dict, i: int) -> list[dict]:
    return expand_role(role, layouts[i].meta if i in layouts else None)


def describe_roles(traced, model, arguments) -> tuple[list[dict], list[dict]]:
    """The roles of the graph's placeholders and returned values, in order."""
    from torch.utils import _pytree

    parameters = dict(model.named_parameters(remove_duplicate=False))
    inputs = []
    for i, fqn in enumerate(traced.state_fqns):
        role = {"role": "parameter" if fqn in parameters else "buffer", "fqn": fqn}
        if fqn in parameters:
            role["requires_grad"] = parameters[fqn].requires_grad
        inputs += _expand(role, traced.input_subclass_layouts, i)
    leaves, _ = _pytree.tree_flatten_with_path(arguments)
    for i, (path, _) in enumerate(leaves, len(traced.state_fqns)):
        name = USER_INPUTS[path[0].idx] + _pytree.keystr(path[1:])
        inputs += _expand({"role": "user", "which": name}, traced.input_subclass_layouts, i)
    trained = [fqn for fqn, parameter in parameters.items() if parameter.requires_grad]
    outputs = []
    for i, role in enumerate([{"role": "loss"}] + [{"role": "grad", "fqn": f} for f in trained]):
        outputs += _expand(role, traced.output_subclass_layouts, i)
    return inputs, outputs


def describe_process_groups(dims) -> list[dict]:
    """The process groups with the names of the mesh axes that each serves."""
    axes: dict[str, list[str]] = {}
    for axis, mesh in dims._single_axis_meshes.items():
        axes.setdefault(mesh.get_group().group_name, []).append(axis)
    return [{**group, **({"axes": axes[group["name"]]} if group["name"] in axes else {})}
            for group in live_process_groups()]
