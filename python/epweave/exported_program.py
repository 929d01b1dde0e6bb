"""A torch.export.ExportedProgram as `export` takes graphs: a module with annotations, and the roles of its values."""
from __future__ import annotations

import copy

from .labels import annotate

_INPUT_ROLES = {"PARAMETER": "parameter", "BUFFER": "buffer", "CONSTANT_TENSOR": "buffer"}
_OUTPUT_ROLES = {"LOSS_OUTPUT": "loss", "GRADIENT_TO_PARAMETER": "grad", "BUFFER_MUTATION": "mutation"}


def is_exported_program(x) -> bool:
    """Whether `x` is one, without importing torch.export."""
    return type(x).__name__ == "ExportedProgram" and hasattr(x, "graph_signature")


def facts_of(program) -> dict:
    """The keywords of `export` that the program's signature says: "inputs" and "outputs"."""
    inputs, outputs = [], []
    for spec in program.graph_signature.input_specs:
        role = _INPUT_ROLES.get(spec.kind.name)
        inputs.append({"role": role, "fqn": spec.target} if role else
                      {"role": "user", "which": getattr(spec.arg, "name", "")})
    for spec in program.graph_signature.output_specs:
        role = _OUTPUT_ROLES.get(spec.kind.name, "other")
        outputs.append({"role": role, **({"fqn": spec.target} if role in ("grad", "mutation") else {})})
    return {"inputs": inputs, "outputs": outputs}


def module_of(program):
    """A copy of the program's graph module with module paths and directions; the program stays as it is."""
    import torch
    module = torch.fx.GraphModule(program.graph_module, copy.deepcopy(program.graph_module.graph))
    return annotate(module)
