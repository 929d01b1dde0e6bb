"""A graph's process groups and meshes as this process has them."""
from __future__ import annotations

from .errors import GraphFileError, UsageError


def own_rank() -> int:
    """This process's rank; UsageError where torch.distributed has none."""
    import torch.distributed as dist
    if not (dist.is_available() and dist.is_initialized()):
        raise UsageError("this process has no rank", remedy="call torch.distributed.init_process_group, or give rank= and no meshes")
    return dist.get_rank()


class LiveMeshes:
    """What the groups and meshes of a rank's graph are called in this process.

    `groups` are the rows of the graph's group table, `meshes` live DeviceMeshes. A group of the table is the live one
    with the same members, of the same axis where there are several. One that a pass added is made later
    (`create_process_groups`) and keeps its name.
    """

    def __init__(self, groups, meshes):
        from torch.distributed.device_mesh import DeviceMesh
        if not isinstance(meshes, (list, tuple)) or not all(isinstance(mesh, DeviceMesh) for mesh in meshes):
            raise UsageError(f"meshes is a list of DeviceMeshes, and {meshes!r} was given")
        self.table, self.meshes = list(groups), list(meshes)
        self.names: dict[str, str | None] = {}  # None: in no mesh
        known = self._live_groups()
        for row in self.table:
            if "split_from" in row:
                self.names[row["name"]] = row["name"]
                continue
            alike = [(axis, name) for axis, name, ranks in known if ranks == sorted(row.get("ranks", ()))]
            named = [name for axis, name in alike if axis in row.get("axes", ())]
            self.names[row["name"]] = next(iter([*named, *(name for _, name in alike)]), None)

    def _live_groups(self) -> list[tuple[str | None, str, list[int]]]:
        """(axis, name, members) of each group that a mesh has, and of all ranks."""
        import torch.distributed as dist
        out = []
        for mesh in self.meshes:
            for dim in range(mesh.ndim):
                group = mesh.get_group(dim)
                axis = mesh.mesh_dim_names[dim] if mesh.mesh_dim_names else None
                out.append((axis, group.group_name, sorted(dist.get_process_group_ranks(group))))
        world = dist.group.WORLD
        out.append((None, world.group_name, list(range(dist.get_world_size()))))
        return out

    def name(self, group: str) -> str:
        """What a group of the graph is called here."""
        found = self.names.get(group)
        if found is None:
            row = next((x for x in self.table if x["name"] == group), {})
            axes = ", ".join(row.get("axes", ())) or "no axis"
            ranks = list(row.get("ranks", ()))
            raise GraphFileError(f"uses process group {group} ({axes}; ranks {ranks}), which is in none of the meshes of"
                                 " this process", remedy="give the mesh of that axis, too")
        return found

    def mesh(self, placeholder):
        """The live mesh of these axes and ranks; the placeholder where there is none."""
        for mesh in self.meshes:
            same = (list(mesh.mesh_dim_names or ()) == list(placeholder.axes)
                    and mesh.mesh.tolist() == _nested(placeholder.ranks, list(placeholder.shape)))
            if same:
                return mesh
        return placeholder

    def rename(self, target, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """A call's arguments with the group that it names called as here."""
        schema = getattr(target, "_schema", None)
        parameters = [p.name for p in schema.arguments] if schema is not None else []
        if "group_name" not in parameters:
            return args, kwargs
        at = parameters.index("group_name")
        if at < len(args) and isinstance(args[at], str):
            args = (*args[:at], self.name(args[at]), *args[at + 1:])
        elif isinstance(kwargs.get("group_name"), str):
            kwargs = {**kwargs, "group_name": self.name(kwargs["group_name"])}
        return args, kwargs

    def rows(self) -> list[dict]:
        """The group table with the names of this process; without groups that are in no mesh."""
        out = []
        for row in self.table:
            source = row.get("split_from")
            if self.names[row["name"]] is None or (source is not None and self.names.get(source, source) is None):
                continue
            more = {} if source is None else {"split_from": self.names.get(source, source)}
            out.append({**row, "name": self.names[row["name"]], **more})
        return out


def _nested(ranks, shape: list[int]):
    """Ranks, nested or flat, as nested lists of a shape."""
    flat: list[int] = []

    def collect(x):
        if isinstance(x, (list, tuple)):
            for y in x:
                collect(y)
        else:
            flat.append(x)

    collect(ranks)
    for size in reversed(shape[1:]):
        flat = [flat[i:i + size] for i in range(0, len(flat), size)]
    return flat
