"""Process groups that passes added to a graph."""
from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import GraphFileError
from .exporter import FILE_FACTS

if TYPE_CHECKING:
    from .kinds import GraphModule, ProcessGroup


def create_process_groups(graph_module: GraphModule) -> dict[str, ProcessGroup]:
    """Makes the process groups that passes added to a loaded graph; returns them by name.

    A pass such as isolate-ep-pg writes a row to the graph's group table: "0_ep_extra, split
    from 0, high priority". Each gets the ranks that its source has on this rank, and its name
    is registered, so that collectives of the graph find it. Call it on every rank, after the
    groups of the model's meshes were made and before the graph runs: groups are made in the
    order of the table, the same on all ranks. A name that is known already is left alone, so
    that calling it again does nothing.

        module = epweave_fx.load("overlapped.epw")
        epweave_fx.create_process_groups(module)

    Raises GraphFileError where the source of a group is not known in this process.
    """
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d
    if not (dist.is_available() and dist.is_initialized()):
        raise GraphFileError("process groups are made in a process of torch.distributed, and this is none",
                             remedy="call torch.distributed.init_process_group first, then make the model's meshes")

    def find(name: str):
        try:
            return c10d._resolve_process_group(name)
        except (RuntimeError, ValueError):
            return None

    made = {}
    for row in graph_module.meta.get(FILE_FACTS, {}).get("process_groups", ()):
        if "split_from" not in row:
            continue
        name, source = row["name"], find(row["split_from"])
        made[name] = find(name)
        if made[name] is not None:
            continue
        if source is None:
            raise GraphFileError(f"process group {name!r} is split from {row['split_from']!r}, which this process does not know",
                                 remedy="make the model's meshes first, as they were when the step was traced")
        backend = dist.get_backend(source)
        options = None
        if backend == "nccl" and row.get("priority") == "high":
            options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
        # Only members take part: the groups of other ranks have other members.
        made[name] = dist.new_group(dist.get_process_group_ranks(source), backend=backend, pg_options=options,
                                    group_desc=row.get("description"), use_local_synchronization=True)
        c10d._register_process_group(name, made[name])
    return made
