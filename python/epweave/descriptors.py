"""The roles that AOTAutograd's descriptors give the inputs and outputs of a joint graph
(torch._functorch.aot_autograd.aot_export_joint_with_descriptors): on placeholders, and on the output as a list."""
from __future__ import annotations

KEY = "desc"  # of a node's meta


def _class_of(descriptor) -> str:
    return type(descriptor).__name__


def _is_descriptor(value) -> bool:
    return any(base.__name__ in ("AOTInput", "AOTOutput") for base in type(value).__mro__)


def holds_descriptors(value) -> bool:
    """Whether metadata is a descriptor, or a list of them (None: of a result that is None)."""
    values = value if isinstance(value, (list, tuple)) else [value]
    return any(map(_is_descriptor, values)) and all(x is None or _is_descriptor(x) for x in values)


def input_role(descriptor, name: str) -> dict:
    """The role of the placeholder `name`."""
    kind = _class_of(descriptor)
    if kind == "SubclassGetAttrAOTInput":
        return {**input_role(descriptor.base, name), "inner": descriptor.attr}
    if kind in ("ParamAOTInput", "BufferAOTInput"):
        return {"role": "parameter" if kind == "ParamAOTInput" else "buffer", "fqn": descriptor.target}
    return {"role": "tangent" if kind == "TangentAOTInput" else "user", "which": name}


def output_role(descriptor) -> dict:
    kind = _class_of(descriptor)
    if kind == "SubclassGetAttrAOTOutput":
        return {**output_role(descriptor.base), "inner": descriptor.attr}
    of = getattr(descriptor, "grad_of", None) or getattr(descriptor, "mutated_input", None)
    target = input_role(of, "").get("fqn") if of is not None else None
    if target is None:
        return {"role": "other"}
    return {"role": "grad" if kind == "GradAOTOutput" else "mutation", "fqn": target}


def roles_of(graph) -> tuple[list[dict], list[dict]] | None:
    """Roles of the placeholders and of the returned values of a torch.fx.Graph; None where it has no descriptors."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    output = next(node for node in reversed(graph.nodes) if node.op == "output")
    descriptors = output.meta.get(KEY)
    if not isinstance(descriptors, (list, tuple)) or not holds_descriptors(descriptors):
        return None
    if not inputs or not all(_is_descriptor(node.meta.get(KEY)) for node in inputs):
        return None
    return [input_role(node.meta[KEY], node.name) for node in inputs], [output_role(x) for x in descriptors]
