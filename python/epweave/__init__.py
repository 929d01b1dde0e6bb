"""epweave: hides expert-parallel communication of PyTorch training graphs behind compute.

    import epweave
    epweave.export(graph_module, "step.epw")                     # a traced step as a graph file
    result = epweave.rewrite("step.epw", preset="ep-overlap")    # chunked, scheduled
    assert epweave.verify("step.epw", result)                    # proved
    module = result.graph                                        # a torch.fx.GraphModule again

torch is imported by what needs it only (`export`, `load`, `Result.graph`), torchtitan by `epweave.torchtitan` only.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from .api import Check, Difference, Proof, Report, Result, diff, replay_check, rewrite, verify, verify_ranks
from .artifact import Artifact, check_artifact, load_artifact, make_artifact, save_artifact, save_trace
from .errors import (DeclinedError, DeviceError, EpweaveError, GraphFileError, InternalError, MismatchError,
                     RunError, UsageError)
from .exporter import export
from .groups import create_process_groups
from .halves import Halves, partition
from .labels import annotate
from .loader import load
from .programs import find_program
from .programs import package_version as _package_version
from .tracing import Step, trace

__all__ = [
    "Artifact", "Check", "DeclinedError", "DeviceError", "Difference", "EpweaveError", "GraphFileError", "Halves",
    "InternalError", "MismatchError", "Proof", "Report", "Result", "RunError", "Step", "UsageError", "annotate",
    "check_artifact", "create_process_groups", "diff", "export", "find_program", "load", "load_artifact",
    "make_artifact", "partition", "replay_check", "rewrite", "save_artifact", "save_trace", "trace", "verify",
    "verify_ranks",
]

if TYPE_CHECKING:
    __version__: str
else:
    def __getattr__(name):
        if name == "__version__":
            return _package_version()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
