"""The drop-in for torchtitan's graph_trainer: importing this module registers the pass pipeline `epweave`.

    import epweave.torchtitan                     # then: --compile.pass_pipeline epweave

An installed package needs no import (`epweave_autoload`).
On every rank the traced step goes through `epweave rewrite` and comes back as the module that trains. Environment:

    EPWEAVE_PIPELINE     a pipeline, or a preset with options ('ep-overlap{parts=4,symbolize=yes}'); default:
                         ep-overlap{symbolize=yes} with expert parallelism, else dce,canonicalize,dedup-unshard
    EPWEAVE_BEFORE, EPWEAVE_AFTER
                         torchtitan's passes, by name with commas between, to run before and behind it
    EPWEAVE_THEN         a second pipeline, to run behind those of EPWEAVE_AFTER: EPWEAVE_PIPELINE and this one stand
                         around torchtitan's bucketing
    EPWEAVE_KEEP         a folder that gets the graphs of each rank: rankN.in.epw, rankN.out.epw; of EPWEAVE_THEN
                         rankN.then.in.epw, rankN.then.out.epw
    EPWEAVE_PARTITION    POLICY or POLICY:BUDGET: what the last pipeline made is split in forward and backward
                         (`epweave partition`), and what trains is the one half behind the other
    EPWEAVE_VERIFY=1     also prove the rewrite on each rank (`epweave verify A B`) before the first step, and the halves
    EPWEAVE_PRECOMPILE   a folder: the rewritten step becomes its artifact, for all ranks, and the process exits
    EPWEAVE_REPAIR=1     then: numbers of one rank that are proved to be are replaced first
    EPWEAVE_TRACE        a folder: the step as this rank traces it is written there, and the process exits; join_traces makes
                         an artifact of the traces of several ranks
    EPWEAVE_ARTIFACT     a folder: the artifact there is loaded when the trainer is built, and nothing is traced
    EPWEAVE_TIMEOUT      seconds that each program of a step may run, before it is ended and all ranks stop; default 600.
                         A rank waits three times as long for the others

A variable that looks like one of these and is none is refused (EPWEAVE_PIPLINE). Pipelines, policies and programs are looked
at when the trainer is built, before anything is traced. A rank that fails stops all ranks; so do ranks that are told different
passes, and graphs whose collectives do not match (`epweave verify --ranks`).

`python -m epweave.torchtitan --help`: trains a debug model on CPU ranks with several pipelines and compares them.
"""
from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import itertools
import json
import os
import re
import tempfile
import time
import weakref
from collections.abc import Iterator

from .api import Proof, rescue_reproducer, rewrite, run, verify, words_of_pipeline
from .artifact import Artifact, load_artifact, make_artifact, save_artifact, save_trace
from .errors import EpweaveError, GraphFileError, RunError, UsageError, full_text
from .exporter import export
from .files import read_bytes, write_bytes
from .groups import create_process_groups
from .halves import Halves, partition, split_policy
from .job import describe_job
from .loader import load
from .programs import limiting, looking
from .roles import describe_process_groups, describe_roles
from .settings import check_environment, is_set, seconds_of_a_program

ARTIFACT = "step.epw"  # in the folder
NORMALIZE = "dce,canonicalize,dedup-unshard"
_PROGRAMS_OF_A_STEP = 3  # that other ranks wait for: rewrite, its proof, partition; a rank that fails is heard of at once
_MORE_TIME = "set EPWEAVE_TIMEOUT to more seconds, or give a shorter EPWEAVE_PIPELINE"
_trainers: list = []  # those that were built, as weak references
_rounds = itertools.count()
_OF_THE_STEP = ("PIPELINE", "BEFORE", "AFTER", "THEN", "PARTITION")  # of the settings, which all ranks must share


def remember_trainer(trainer) -> None:
    """torchtitan's post-init hook: the trainer says what parameters and meshes are called. It gets its step from the
    artifact where there is one."""
    with stopping_all():
        check_environment()
    _trainers[:] = [*(known for known in _trainers if known() is not None), weakref.ref(trainer)]
    if os.environ.get("EPWEAVE_ARTIFACT"):
        trainer._traced_step = load_step(trainer, os.environ["EPWEAVE_ARTIFACT"]).traced()


def _is_one_process() -> bool:
    """Whether this process works for itself and ends then: it waits for no other rank."""
    return bool(os.environ.get("EPWEAVE_TRACE") or os.environ.get("EPWEAVE_PRECOMPILE"))


def _trainer_of(traced):
    """The trainer that a step was traced for; the one built last where none says so."""
    trainers = [trainer for known in _trainers if (trainer := known()) is not None]
    if not trainers:
        raise UsageError("the pass pipeline epweave has seen no trainer",
                         remedy="import epweave.torchtitan before the trainer is built")
    return next((trainer for trainer in trainers if trainer._traced_step is traced), trainers[-1])


def _name_of(run_pass) -> str:
    return (run_pass.func if isinstance(run_pass, functools.partial) else run_pass).__name__


def choose_passes(names: str, known: list) -> list:
    """Those of torchtitan's passes that `names` lists, in its order; UsageError for an unknown one."""
    wanted = [name for name in re.split(r"[,\s]+", names) if name]
    table = {_name_of(p): p for p in known}
    for name in wanted:
        if name not in table:
            raise UsageError(f"torchtitan's list for this configuration has no pass {name}",
                             remedy=f"it has {', '.join(table)}")
    return [table[name] for name in wanted]


def _pipeline(parallel_dims) -> str:
    return os.environ.get("EPWEAVE_PIPELINE") or default_pipeline(parallel_dims)


def default_pipeline(parallel_dims) -> str:
    return "ep-overlap{symbolize=yes}" if parallel_dims is not None and parallel_dims.ep > 1 else NORMALIZE


# ----------------------------------------------------------------------------------------- ranks
class Ranks:
    """What ranks tell each other through the rendezvous store while they rewrite."""

    def __init__(self, *, is_alone: bool = False):
        import torch.distributed as dist
        self.is_alone = (is_alone or not (dist.is_available() and dist.is_initialized())
                         or dist.get_world_size() == 1)
        self.rank, self.size = (0, 1) if self.is_alone else (dist.get_rank(), dist.get_world_size())
        self.store = None if self.is_alone else dist.distributed_c10d._get_default_store()
        self.round = next(_rounds)

    def _key(self, what: str) -> str:
        return f"epweave/{self.round}/{what}"

    def keep_one_reproducer(self, error: EpweaveError, folder: str) -> None:
        """Moves the reproducer of the rank that fails first out of its temporary folder; the errors of all ranks name it."""
        if self.is_alone or self.store.add(self._key("failing"), 1) == 1:
            try:
                rescue_reproducer(error, folder)
            finally:
                if not self.is_alone:
                    self.store.set(self._key("reproducer"), json.dumps(error.reproducer))
        else:
            error.keep_reproducer(json.loads(self.store.get(self._key("reproducer"))))

    def fail(self, message: str) -> None:
        """Tells the others that this rank stops."""
        if not self.is_alone:
            self.store.set(self._key("failed"), f"rank {self.rank}: {message}")

    def hear(self) -> None:
        """Raises RunError where another rank has failed."""
        if not self.is_alone and self.store.check([self._key("failed")]):
            raise RunError("another rank stopped: " + self.store.get(self._key("failed")).decode())

    def meet(self, what: str, data: bytes = b"done") -> None:
        """Waits until all ranks have come here; raises RunError as soon as one of them has failed."""
        if self.is_alone:
            return
        self.store.set(self._key(f"{what}/{self.rank}"), data)
        others = [self._key(f"{what}/{rank}") for rank in range(self.size)]
        seconds = _PROGRAMS_OF_A_STEP * seconds_of_a_program()
        deadline = time.monotonic() + seconds
        while not self.store.check(others):
            self.hear()
            if time.monotonic() > deadline:
                late = [rank for rank in range(self.size) if not self.store.check([others[rank]])]
                raise RunError(f"ranks {late} did not come as far as this one in {seconds:g} seconds ({what})",
                               remedy=f"see what they say, or {_MORE_TIME}")
            time.sleep(0.2)

    def get(self, what: str, rank: int) -> bytes:
        return self.store.get(self._key(f"{what}/{rank}"))


@contextlib.contextmanager
def stopping_all(ranks: Ranks | None = None) -> Iterator[None]:
    """What is raised within stops the other ranks, too: those that meet as `ranks`, else where they meet next. A program
    that runs within ends as soon as another of `ranks` has failed, or after EPWEAVE_TIMEOUT."""
    try:
        with contextlib.ExitStack() as watch:
            if ranks:
                watch.enter_context(looking(ranks.hear))
                watch.enter_context(limiting(seconds_of_a_program(), _MORE_TIME))
            yield
    except Exception as error:
        (ranks or Ranks(is_alone=_is_one_process())).fail(full_text(error))
        raise


def check_ranks(ranks: Ranks, path: str, folder: str) -> None:
    """Stops all ranks where the collectives of their graphs do not match."""
    if ranks.is_alone:
        return
    with open(path, "rb") as f:
        ranks.meet("graph", f.read())
    if ranks.rank == 0:
        paths = []
        for rank in range(ranks.size):
            paths.append(os.path.join(folder, f"all{rank}.epw"))
            with open(paths[-1], "wb") as f:
                f.write(ranks.get("graph", rank))
        report, _ = run("epweave", "verify", "--ranks", *paths, "-q", accept=(0, 1))
        if not report["ok"]:
            first = report["violations"][0]
            between = " and ".join(f"rank {rank}" for rank in first["ranks"])
            raise RunError(f"the ranks' graphs do not match: {between}: {first['message']}", id=first["invariant"],
                           remedy="EPWEAVE_KEEP=FOLDER keeps the ranks' graphs; `epweave verify --ranks` lists all that differs")
    ranks.meet("checked")


def check_settings(ranks: Ranks) -> None:
    """Stops all ranks where one is told other passes than rank 0."""
    if ranks.is_alone:
        return
    own = {f"EPWEAVE_{name}": os.environ.get(f"EPWEAVE_{name}", "") for name in _OF_THE_STEP}
    ranks.meet("settings", json.dumps(own).encode())
    first = json.loads(ranks.get("settings", 0))
    rows = [f"{name}: rank 0 has {first[name] or 'none'}, rank {ranks.rank} has {own[name] or 'none'}"
            for name in own if own[name] != first[name]]
    if rows:
        raise UsageError("\n  ".join(["the ranks are told different passes:", *rows]), remedy="give all ranks the same environment")
    ranks.meet("agreed")


# ------------------------------------------------------------------------------------------ pass
def _export_facts(traced, trainer, dims, rank: int, size: int) -> dict:
    """The keywords of `export` that the trainer knows."""
    from torch.utils import _pytree
    spec = traced.user_inputs_spec
    flat = len(traced.state_fqns) + spec.num_leaves
    if any(i >= len(traced.state_fqns) for i in traced.input_subclass_layouts) or traced.num_flat_inputs != flat:
        raise UsageError("a user input of the step is a tensor subclass", remedy="pass plain tensors to the model")
    args, _ = _pytree.tree_unflatten(list(traced.example_inputs[-spec.num_leaves:]), spec)
    inputs, outputs = describe_roles(traced, trainer.model_parts[0], args)
    meshes = {name: {"axes": list(mesh.mesh_dim_names or ()), "shape": list(mesh.shape)}
              for name, mesh in getattr(dims, "_global_meshes", {}).items()}
    info = {"rank": rank, "world_size": size, "global_meshes": meshes, "num_static_inputs": traced.num_static_inputs}
    return {"inputs": inputs, "outputs": outputs, "process_groups": describe_process_groups(dims), "info": info}


def _require_proof(proof: Proof, of: str) -> None:
    if not proof:
        raise RunError(f"the {of} is not proved: " + proof.violations[0]["message"])


def split_step(path: str, wanted: str, folder: str, rank: int) -> Halves | None:
    """The halves of a step, as `wanted` (POLICY or POLICY:BUDGET) says; None where it is empty."""
    if not wanted:
        return None
    policy, budget = split_policy(wanted)
    forward, backward = (os.path.join(folder, f"rank{rank}.{part}.epw") for part in ("forward", "backward"))
    halves = partition(path, policy, budget=budget, forward=forward, backward=backward)
    if is_set("EPWEAVE_VERIFY"):
        _require_proof(halves.verify(path), "partition")
    return halves


def rewrite_step(traced, dims, module, pipeline: str, stage: str = ""):
    """The traced step of this rank, rewritten by a pipeline; a new module. `stage` tells the files of EPWEAVE_KEEP apart."""
    trainer, ranks = _trainer_of(traced), Ranks()
    keep = os.environ.get("EPWEAVE_KEEP")
    with tempfile.TemporaryDirectory(prefix="epweave-") as temporary:
        folder = keep or temporary
        before, after = (os.path.join(folder, f"rank{ranks.rank}.{stage}{part}.epw") for part in ("in", "out"))
        with stopping_all(ranks):
            export(module, before, **_export_facts(traced, trainer, dims, ranks.rank, ranks.size))
            kept = os.path.join(folder, f"rank{ranks.rank}.{stage}reproducer.epw")
            try:
                rewrite(before, output=after, keep_reproducer=kept, **words_of_pipeline(pipeline))
            except EpweaveError as error:
                if keep:
                    raise
                ranks.keep_one_reproducer(error, temporary)
                raise error.naming(before, f"the step of rank {ranks.rank}") from None
            if is_set("EPWEAVE_VERIFY"):
                _require_proof(verify(before, after), "rewrite")
            is_last = bool(stage) or not os.environ.get("EPWEAVE_THEN")
            halves = split_step(after, os.environ.get("EPWEAVE_PARTITION", "") if is_last else "", folder, ranks.rank)
            ranks.meet("rewritten")
            check_ranks(ranks, after, temporary)
            rewritten = halves.join() if halves else load(after)
    create_process_groups(rewritten)
    return rewritten


# -------------------------------------------------------------------------------------- artifacts
class Precompiled(SystemExit):
    """The artifact, or this rank's trace, is written; the process ends with exit code 0."""


def _require_nothing_behind() -> None:
    if os.environ.get("EPWEAVE_PARTITION"):
        raise UsageError("an artifact holds the step whole, and EPWEAVE_PARTITION splits it",
                         remedy="unset EPWEAVE_PARTITION, or trace on each rank")
    for variable in ("EPWEAVE_AFTER", "EPWEAVE_THEN"):
        if os.environ.get(variable):
            raise UsageError(f"an artifact holds the step as EPWEAVE_PIPELINE leaves it, and {variable} names passes to run after",
                             remedy="run them before it (EPWEAVE_BEFORE), or trace on each rank")


def _describe(trainer, dims) -> dict[str, str]:
    return {**describe_job(trainer, _pipeline(dims)), "passes_before": os.environ.get("EPWEAVE_BEFORE", "")}


def precompile(traced, dims, module, folder: str) -> str:
    """Writes the traced step, rewritten, as the artifact of `folder`; its path."""
    trainer, ranks = _trainer_of(traced), Ranks(is_alone=True)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, ARTIFACT)
    facts = _export_facts(traced, trainer, dims, ranks.rank, dims.world_size)
    facts["info"]["compile_on_one_rank"] = _is_for_all_ranks()
    save_artifact(traced, path, graph=module, pipeline=_pipeline(dims), repair=is_set("EPWEAVE_REPAIR"),
                  config=_describe(trainer, dims), **facts)
    return path


def write_trace(traced, dims, module, folder: str) -> str:
    """Writes this rank's step, as traced, and the job's key/values, for `join_traces`; the path of the step."""
    import torch.distributed as dist
    trainer, rank = _trainer_of(traced), dist.get_rank()
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"rank-{rank:05}.epw")
    # The step last: where it is, the other is.
    write_bytes(json.dumps(_describe(trainer, dims)).encode(), _job_of_trace(path))
    save_trace(traced, path, graph=module, **_export_facts(traced, trainer, dims, rank, dims.world_size))
    return path


def _job_of_trace(path: str) -> str:
    """The file with the job's key/values beside a trace."""
    return path.removesuffix(".epw") + ".json"


def _read_job(path: str) -> dict[str, str]:
    """The key/values of the job that a trace is of."""
    try:
        job = json.loads(read_bytes(_job_of_trace(path)))
        if not isinstance(job, dict):
            raise ValueError("holds no object of keys and values")
        return job
    except (GraphFileError, ValueError) as error:
        raise GraphFileError(f"{_job_of_trace(path)}: {error}",
                             remedy="trace the rank again: EPWEAVE_TRACE writes both files") from None


def join_traces(traces: str, folder: str, *, repair: bool = False) -> str:
    """Makes the artifact of `folder` of what ranks of one job have written to `traces` (EPWEAVE_TRACE); its path.

    Raises GraphFileError where a difference between the ranks is not explained, or where a rank more must be traced.
    """
    paths = sorted(glob.glob(os.path.join(glob.escape(traces), "rank-*.epw")))
    if not paths:
        raise UsageError(f"{traces} has no traces", remedy="run ranks of the job with EPWEAVE_TRACE")
    jobs = [_read_job(path) for path in paths]
    for path, job in zip(paths, jobs):
        other = next((key for key in {**jobs[0], **job} if jobs[0].get(key) != job.get(key)), None)
        if other is not None:
            raise UsageError(f"{path} is of another job than {paths[0]}: {other} is {job.get(other)}, there {jobs[0].get(other)}",
                             remedy="trace all ranks with one configuration, into a folder of their own")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, ARTIFACT)
    make_artifact(paths, path, pipeline=jobs[0]["pipeline"], repair=repair, config=jobs[0])
    return path


def _is_for_all_ranks() -> bool:
    import torch.distributed
    return bool(torch.distributed.config.compile_on_one_rank)


def live_meshes(dims) -> list:
    """The meshes of a torchtitan run: those of one axis first, then those of several."""
    return [*dims._single_axis_meshes.values(), *dims._global_meshes.values()]


def load_step(trainer, folder: str) -> Artifact:
    """The artifact of `folder` as this rank runs it. Stops all ranks where one has another, or one that is stale."""
    _require_nothing_behind()
    dims, ranks = trainer.parallel_dims, Ranks()
    with stopping_all(ranks):
        artifact = load_artifact(os.path.join(folder, ARTIFACT), _describe(trainer, dims), rank=ranks.rank,
                                 meshes=live_meshes(dims), rank_device=str(trainer.device))
        check_state(artifact, trainer.model_parts[0])
        ranks.meet("fingerprint", json.dumps(artifact.fingerprint).encode())
        check_fingerprints(ranks)
    create_process_groups(artifact.graph)
    return artifact


def check_state(artifact: Artifact, model) -> None:
    """Stops where the model's parameters and buffers are not those of the artifact, in order."""
    from torchtitan.experiments.graph_trainer.make_fx_tracer import extract_module_state
    here = list(extract_module_state(model))
    if here != artifact.state_names:
        first = next((pair for pair in itertools.zip_longest(artifact.state_names, here) if pair[0] != pair[1]))
        raise RunError(f"{artifact.path}: was traced of a model with {first[0]} where this one has {first[1]}",
                       remedy="make the artifact again with the configuration of this run")


def check_fingerprints(ranks: Ranks) -> None:
    """Stops all ranks where two have different artifacts, with both fingerprints and each field that differs."""
    if ranks.is_alone:
        return
    all_of = [json.loads(ranks.get("fingerprint", rank)) for rank in range(ranks.size)]
    for rank, other in enumerate(all_of):
        if other == all_of[0]:
            continue
        marks = [hashlib.sha256(json.dumps(x, sort_keys=True).encode()).hexdigest()[:16] for x in (all_of[0], other)]
        rows = [f"{field}: rank 0 has {all_of[0].get(field)}, rank {rank} has {other.get(field)}"
                for field in sorted({**all_of[0], **other}) if all_of[0].get(field) != other.get(field)]
        message = f"the ranks have different artifacts: rank 0 one of fingerprint {marks[0]}, rank {rank} one of {marks[1]}:"
        raise RunError("\n  ".join([message, *rows]), remedy="give all ranks the same file")


def construct_passes(traced, config, *, parallel_dims=None) -> list:
    """torchtitan's pass pipeline `epweave`."""
    from torchtitan.experiments.graph_trainer.passes import compile_time_passes

    with stopping_all(ranks := Ranks(is_alone=_is_one_process())):
        known = compile_time_passes(traced, config, parallel_dims=parallel_dims, include_inductor=False)
        before, after = (choose_passes(os.environ.get(variable, ""), known) for variable in ("EPWEAVE_BEFORE", "EPWEAVE_AFTER"))
        check_settings(ranks)

    def epweave_rewrite_pass(module, example_inputs):
        if os.environ.get("EPWEAVE_TRACE"):
            _require_nothing_behind()
            write_trace(traced, parallel_dims, module, os.environ["EPWEAVE_TRACE"])
            raise Precompiled(0)
        if os.environ.get("EPWEAVE_PRECOMPILE"):
            _require_nothing_behind()
            print(f"epweave: wrote {precompile(traced, parallel_dims, module, os.environ['EPWEAVE_PRECOMPILE'])}")
            raise Precompiled(0)
        return rewrite_step(traced, parallel_dims, module, _pipeline(parallel_dims))

    def epweave_then_pass(module, example_inputs):
        return rewrite_step(traced, parallel_dims, module, os.environ["EPWEAVE_THEN"], "then.")

    return [*before, epweave_rewrite_pass, *after, *([epweave_then_pass] if os.environ.get("EPWEAVE_THEN") else [])]


def register() -> None:
    """Makes `--compile.pass_pipeline epweave` known to torchtitan."""
    from torchtitan.experiments.graph_trainer import registry
    registry.register_pass_pipeline("epweave")(construct_passes)
    registry.register_post_init_hook("epweave")(remember_trainer)


if __name__ == "__main__":
    from epweave.train_on_cpu import main
    raise SystemExit(main())
register()
