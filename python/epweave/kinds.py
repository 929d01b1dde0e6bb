"""What arguments and results of the API may be, for type checkers: no module imports this one to run."""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Union

from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.nn import Module

from .api import Proof, Result
from .tracing import Step

Path = Union[str, "os.PathLike[str]"]
Traced = Union[GraphModule, ExportedProgram]
Graph = Union[str, "os.PathLike[str]", GraphModule, ExportedProgram, Step, Result]
Inputs = Union[Mapping[str, Any], Sequence[Any]]

__all__ = ["DeviceMesh", "ExportedProgram", "Graph", "GraphModule", "Inputs", "Module", "Path", "ProcessGroup", "Proof", "Traced"]
