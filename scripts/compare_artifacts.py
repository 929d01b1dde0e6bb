#!/usr/bin/env python3
"""torchtitan's own artifact and epweave's, of one trace: size, processor time, and which changes of a run each lets pass.

    compare_artifacts.py [--model deepseek_v3] [--world 2] [--tp 1] [--ep N] [--layers 2] [--all]

Traces a debug model's step once for all ranks (fake process group, CPU, no Inductor), stores and loads it with torchtitan's
`precompile_fx_trace_save` and `.._load` and with `epweave.save_artifact` and `load_artifact`. Then one fact at a time of the
run that loads it is another one: a setting, the model, a version, a mode; and a number in the stored graph. Prints one row
for each kind of change, with --all one for each change.

Needs torch 2.15 and torchtitan 0.3. Exit codes: 0 epweave refuses every change and names it, 1 it does not, 2 usage.
"""
from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import importlib
import importlib.metadata
import pathlib
import resource
import sys
import tempfile
import types
import typing
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import epweave_fx  # noqa: E402, F401  finds the package and protobuf
import epweave  # noqa: E402
from epweave import train_on_cpu  # noqa: E402

# Where files lie, what is logged, and whether there is a graph at all: no part of the step.
NOT_OF_THE_STEP = ("precompile_artifact_dir", "debug_graph_passes", "enable")


class Traced(Exception):
    """The step as torchtitan traces it, before any pass."""


def trace(options):
    """The trainer of rank 0, and the traced step."""
    registry = importlib.import_module(f"{train_on_cpu.TRACER}.registry")

    def stop(traced):
        def run_pass(module, example_inputs):
            raise Traced(traced)
        return run_pass

    registry.register_pass_pipeline("compared")(lambda traced, config, *, parallel_dims=None: [stop(traced)])
    trainer = train_on_cpu.set_up(options, "fake", rank=0)
    epweave.torchtitan.remember_trainer(trainer)
    try:
        train_on_cpu.run_step(trainer, options, 0, 0)
    except Traced as found:
        return trainer, found.args[0]
    raise RuntimeError("torchtitan ran no pass pipeline")


# ------------------------------------------------------------------------------------- two stores
class Torchtitan:
    """What torchtitan's own precompilation stores."""

    name = "torchtitan"

    def __init__(self, folder: pathlib.Path):
        from torchtitan.experiments.graph_trainer import precompile, storage
        self.functions, self.storage, self.folder = precompile, storage.DiskStorageAdapter(folder), folder

    def fingerprint(self, job) -> str:
        return self.functions.compute_config_fingerprint(job.model_parts[0], job.config.compile, job.parallel_dims)

    def save(self, job, traced) -> pathlib.Path:
        return pathlib.Path(self.functions.precompile_fx_trace_save(traced, self.storage, self.fingerprint(job)))

    def load(self, job):
        return self.functions.precompile_fx_trace_load(self.storage, self.fingerprint(job)).gm

    def refuses(self, job) -> str:
        """Why it would not load the artifact; empty where it would."""
        with mock.patch.object(self.functions.PrecompiledFxTraceArtifact, "to_traced_result", lambda _: None):
            try:
                self.functions.precompile_fx_trace_load(self.storage, self.fingerprint(job))
            except ValueError as error:
                return str(error)
        return ""

    def change_a_number(self, job, traced) -> None:
        changed = self.functions.precompile_fx_trace_load(self.storage, self.fingerprint(job))
        node = next(n for n in changed.gm.graph.nodes if "mul.Scalar" in str(n.target) or "mul.Tensor" in str(n.target)
                    and isinstance(n.args[1], float))
        node.update_arg(1, node.args[1] * 2)
        self.functions.precompile_fx_trace_save(changed, self.storage, self.fingerprint(job))


class Epweave:
    """What epweave.save_artifact stores."""

    name = "epweave"

    def __init__(self, folder: pathlib.Path):
        self.path, self.client = folder / "step.epw", importlib.import_module("epweave.torchtitan")

    def describe(self, job) -> dict:
        return self.client._describe(job, job.parallel_dims)

    def save(self, job, traced) -> pathlib.Path:
        facts = self.client._export_facts(traced, job, job.parallel_dims, 0, job.parallel_dims.world_size)
        facts["info"]["compile_on_one_rank"] = True
        epweave.save_artifact(traced, str(self.path), config=self.describe(job), **facts)
        return self.path

    def load(self, job):
        return epweave.load_artifact(str(self.path), self.describe(job), rank=0,
                                     meshes=self.client.live_meshes(job.parallel_dims)).graph

    def refuses(self, job) -> str:
        try:
            epweave.check_artifact(str(self.path), self.describe(job), rank=0)
        except epweave.MismatchError as error:
            return ", ".join(x["fingerprint"] if "fingerprint" in x else x["field"] for x in error.mismatches)
        return ""

    def change_a_number(self, job, traced) -> None:
        text = self.path.with_suffix(".txt")
        epweave.programs.run("epweave", "convert", str(self.path), str(text))
        lines = text.read_text(encoding="utf-8").splitlines(keepends=True)
        place = next(i for i, line in enumerate(lines) if "aten.mul" in line and line.split(")")[0].rpartition(", ")[2][:1].isdigit())
        call, _, rest = lines[place].partition(")")
        before, _, number = call.rpartition(", ")
        lines[place] = f"{before}, {float(number) * 2}){rest}"
        text.write_text("".join(lines), encoding="utf-8")
        epweave.programs.run("epweave", "convert", str(text), str(self.path))


# ------------------------------------------------------------------------------------ what changes
def another(value, kind=None):
    """A value of the same type that is not the value."""
    choices = [x for x in typing.get_args(kind) if x not in (value, None) and not isinstance(x, type)]
    if isinstance(value, bool):
        return not value
    if choices:
        return choices[0]
    if isinstance(value, (int, float)):
        return value * 2 if value > 0 else 2
    if isinstance(value, list):
        return [*value, "another"]
    return f"{value or ''}another"


def another_setting(section: str, field: str, inside: str | None = None):
    """A change of config.SECTION.FIELD (or of a configuration inside the section)."""
    @contextlib.contextmanager
    def change(job):
        owner = getattr(job.config, section)
        owner = getattr(owner, inside) if inside else owner
        hints = typing.get_type_hints(type(owner))
        setattr(owner, field, another(getattr(owner, field), hints.get(field)))
        yield
    return change


def another_place(*path):
    """A change of a value somewhere in the model's configuration."""
    @contextlib.contextmanager
    def change(job):
        owner = job.config.model_spec.model
        for step in path[:-1]:
            owner = owner[step] if isinstance(step, int) else getattr(owner, step)
        setattr(owner, path[-1], another(getattr(owner, path[-1])))
        yield
    return change


@contextlib.contextmanager
def another_loss(job):
    from torchtitan.components.loss import MSELoss
    job.config.loss = MSELoss.Config()
    yield


@contextlib.contextmanager
def more_pieces(job):
    job.config.loss.num_chunks *= 2
    yield


def another_degree(axis: str):
    @contextlib.contextmanager
    def change(job):
        job.parallel_dims = copy.copy(job.parallel_dims)
        setattr(job.parallel_dims, axis, getattr(job.parallel_dims, axis) * 2)
        yield
    return change


@contextlib.contextmanager
def another_buffer(job):
    import torch
    model = job.model_parts[0]
    model.register_buffer("another", torch.zeros(3))
    yield
    del model.another


@contextlib.contextmanager
def without_deterministic_mode(job):
    import torch
    torch.use_deterministic_algorithms(False)
    yield
    torch.use_deterministic_algorithms(True, warn_only=True)


@contextlib.contextmanager
def another_torch(job):
    import torch
    with mock.patch.object(torch, "__version__", "2.15.1"):
        yield


@contextlib.contextmanager
def another_torchtitan(job):
    real = importlib.metadata.version
    with mock.patch.object(importlib.metadata, "version", lambda name: "0.3.1" if name == "torchtitan" else real(name)):
        yield


def changes_of(config) -> dict[str, dict]:
    """By kind, each change alone: what makes a job of the recorded one another one."""
    compiled = [f.name for f in dataclasses.fields(config.compile) if f.name not in (*NOT_OF_THE_STEP, "ep_overlap")]
    overlap = [f.name for f in dataclasses.fields(config.compile.ep_overlap)]
    covered = ("mode", "backend", "passes")
    return {
        "parameters and buffers": {"one more buffer": another_buffer},
        "parallel degrees": {axis: another_degree(axis) for axis in ("dp_shard", "tp", "ep")},
        "compile options that torchtitan's fingerprint has": {
            **{name: another_setting("compile", name) for name in covered},
            **{f"ep_overlap.{name}": another_setting("compile", name, "ep_overlap") for name in overlap}},
        "other compile options": {name: another_setting("compile", name) for name in compiled if name not in covered},
        "tokens": {name: another_setting("training", name) for name in ("local_batch_size", "seq_len")},
        "dtypes": {name: another_setting("training", name) for name in ("dtype", "mixed_precision_param")},
        "loss": {"another function": another_loss, "number of pieces": more_pieces},
        "model behind equal shapes": {"base of the rotation": another_place("layers", 0, "attention", "rope", "theta"), "eps of a norm": another_place("norm", "eps")},
        "parallelism policy": {name: another_setting("parallelism", name) for name in (
            "fsdp_reshard_after_forward", "enable_sequence_parallel", "spmd_backend")},
        "deterministic mode": {"off": without_deterministic_mode},
        "version of torch": {"2.15.1": another_torch},
        "version of torchtitan": {"0.3.1": another_torchtitan},
    }


def another_job(trainer):
    """The job of the trainer, with a configuration of its own."""
    return types.SimpleNamespace(config=copy.deepcopy(trainer.config), parallel_dims=trainer.parallel_dims,
                                 model_parts=trainer.model_parts, device=trainer.device)


def try_changes(trainer, stores, changes) -> list[tuple[str, str, list[str]]]:
    """(kind, change, what each store says)."""
    rows = []
    for kind, table in changes.items():
        for name, change in table.items():
            job = another_job(trainer)
            with change(job):
                rows.append((kind, name, [store.refuses(job) for store in stores]))
    return rows


# --------------------------------------------------------------------------------------- tables
def processor_seconds() -> float:
    """Of this process and of the programs that it ran."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def measure(store, job, traced) -> list[str]:
    start = processor_seconds()
    path = store.save(job, traced)
    saved = processor_seconds()
    nodes = len(store.load(job).graph.nodes)
    loaded = processor_seconds()
    return [f"{path.stat().st_size / 1e6:.2f} MB", f"{saved - start:.2f} s", f"{loaded - saved:.2f} s", f"{nodes:,}"]


def print_table(titles, rows) -> None:
    print("| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def say_kind(kind: str, rows: list) -> list[str]:
    """A row for a kind of change: what torchtitan accepts, and the fields that epweave names."""
    accepted = [name for _, name, said in rows if not said[0]]
    ours = [name for _, name, said in rows if not said[1]]
    theirs = "refused" if not accepted else f"accepted: {', '.join(accepted)}" if len(rows) > 1 else "accepted"
    return [f"{kind} ({len(rows)})", theirs, "refused, named" if not ours else f"accepted: {', '.join(ours)}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="a row for each change")
    chosen, words = parser.parse_known_args()
    options = train_on_cpu.make_parser().parse_args(["--layers", "2", "--tokens", "128", "--sequence", "32", *words])
    if options.ep is None:
        options.ep = 1 if options.model == "llama3" else options.world
    options.precompile, options.pipeline = "compared", "compared"
    try:
        trainer, traced = trace(options)
    except ModuleNotFoundError as error:
        sys.exit(f"compare_artifacts: {error}; install torch 2.15 and torchtitan 0.3.0")
    job = another_job(trainer)
    with tempfile.TemporaryDirectory() as folder:
        stores = [Torchtitan(pathlib.Path(folder)), Epweave(pathlib.Path(folder))]
        print(f"{options.model}, {options.layers} layers, {options.world} ranks: {len(traced.gm.graph.nodes):,} nodes\n")
        print_table(["", "file", "save", "load", "nodes loaded"], [[store.name, *measure(store, job, traced)] for store in stores])
        assert [store.refuses(job) for store in stores] == ["", ""]
        rows = try_changes(trainer, stores, changes_of(job.config))
        for store in stores:
            store.change_a_number(job, traced)
        rows.append(("a number of the stored graph", "twice as large", [store.refuses(job) for store in stores]))
    if chosen.all:
        print_table(["kind", "change", "torchtitan", "epweave names"],
                    [[kind, name, "refused" if said[0] else "accepted", said[1] or "accepted"] for kind, name, said in rows])
    kinds = list(dict.fromkeys(kind for kind, _, _ in rows))
    print_table(["what differs (changes)", "torchtitan", "epweave"],
                [say_kind(kind, [row for row in rows if row[0] == kind]) for kind in kinds])
    print(f"of {len(rows)} changes torchtitan accepts {sum(not said[0] for _, _, said in rows)}, "
          f"epweave {sum(not said[1] for _, _, said in rows)}")
    return int(any(not said[1] for _, _, said in rows))


if __name__ == "__main__":
    sys.exit(main())
