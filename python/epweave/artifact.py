"""Artifacts: a training step that was traced and rewritten once, with what it must have in common with the run that
loads it, and how it is called."""
from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .api import rewrite, words_of_pipeline
from .calling import decode, decode_layout, encode_calling
from .errors import DeclinedError, GraphFileError, MismatchError, UsageError
from .exporter import FILE_FACTS, export
from .loader import load
from .meshes import own_rank
from .programs import path_of, require_text, run
from .subclasses import Layout

if TYPE_CHECKING:
    from .kinds import DeviceMesh, GraphModule, Path, Traced

CALLING = "calling"  # the key of the file's info


@dataclasses.dataclass
class Artifact:
    """A loaded artifact: `graph`, this rank's module, and how torchtitan's `run_traced` calls it.

    `state_names` are the parameters and buffers that come first; `input_layouts` and `output_layouts` say by index
    which inputs (state, then user inputs) and outputs are of a wrapper class such as DTensor, and how they are made;
    `input_spec` and `output_spec` are the pytrees of ((arguments), {keywords}) and of the result, with the closures of
    FlexAttention's masks. `num_static_inputs` counts the plain inputs that are state. `fingerprint` has the
    fields that were compared.
    """

    path: str
    graph: GraphModule
    fingerprint: dict[str, str]
    state_names: list[str]
    num_flat_inputs: int
    num_flat_outputs: int
    input_layouts: dict[int, Layout]
    output_layouts: dict[int, Layout]
    input_spec: object
    output_spec: object

    @property
    def num_static_inputs(self) -> int:
        return sum(self.input_layouts[i].count if i in self.input_layouts else 1
                   for i in range(len(self.state_names)))

    def traced(self) -> Any:
        """torchtitan's TracedResult, for `run_traced`."""
        import torch
        from torchtitan.experiments.graph_trainer import make_fx_tracer as tracer

        def meta(layout: Layout):
            inner = {name: (count, None if x is None else meta(x)) for name, (count, x) in layout.inner_metas.items()}
            return tracer.SubclassMeta(layout.cls, layout.attrs, layout.context, inner, layout.outer_size,
                                       layout.outer_stride)

        def layouts(table: dict) -> dict:
            return {i: tracer.SubclassLayout(layout.count, meta(layout)) for i, layout in table.items()}

        examples = tuple(node.meta.get("val") for node in self.graph.graph.nodes if node.op == "placeholder")
        return tracer.TracedResult(
            gm=self.graph, example_inputs=examples, num_flat_inputs=self.num_flat_inputs,
            input_subclass_layouts=layouts(self.input_layouts), user_inputs_spec=self.input_spec,
            tensor_input_indices=[i for i, x in enumerate(examples) if isinstance(x, torch.Tensor)],
            num_flat_outputs=self.num_flat_outputs, output_subclass_layouts=layouts(self.output_layouts),
            output_spec=self.output_spec, state_fqns=self.state_names)


def _config_words(config: dict | None) -> list[str]:
    if not isinstance(config, (dict, type(None))):
        raise UsageError(f"config is a dictionary, and {type(config).__name__} was given: {config!r}",
                         remedy="give keys and values: {'loss': 'mean'}")
    texts = {str(key): str(value) for key, value in (config or {}).items()}
    for key, value in texts.items():
        if "=" in key:
            raise UsageError(f"config has the key {key!r}, and no key can hold an equals sign",
                             remedy="give the key another name")
        if " at 0x" in value:
            raise UsageError(f"config.{key} is {value}, whose address is another one in each process",
                             remedy="give a text that says what it is")
    return [word for key, value in sorted(texts.items()) for word in ("--config", f"{key}={value}")]


def _allow_words(allow: str | Iterable[str]) -> list[str]:
    remedy = "name a field, or give a list of fields: ['config.loss']"
    if not isinstance(allow, Iterable):
        require_text("a field that may differ", allow, remedy)
    fields = [allow] if isinstance(allow, str) else allow
    return [word for field in fields for word in ("--allow", require_text("a field that may differ", field, remedy))]


def save_artifact(traced: Any, path: Path, *, graph: Traced | None = None, pipeline: str | None = None, repair: bool = False,
                  config: dict | None = None, info: dict | None = None, **facts: Any) -> dict[str, str]:
    """Write a traced step as an artifact that every rank can load; returns its fingerprint, by field.

    `traced` is torchtitan's TracedResult: its graph, or `graph` in its place, and how it is called. `facts` are those
    of `export`: inputs, outputs, process_groups, symbols. `pipeline` is run over it first; with `repair`, numbers of one rank that are
    proved to be are replaced before (`epweave generalize --repair`). `config` are key/values that the run which loads
    it must have, too. The file is a graph that every command reads; it is written whole or not at all.

    Raises DeclinedError where the graph is for all ranks and holds numbers of one.
    """
    if pipeline:
        words_of_pipeline(pipeline)  # refused before the export, which takes longer
    with tempfile.TemporaryDirectory(prefix="epweave-") as folder:
        step = os.path.join(folder, "step.epw")
        save_trace(traced, step, graph=graph, info=info, **facts)
        return make_artifact([step], path, pipeline=pipeline, repair=repair, config=config)


def save_trace(traced: Any, path: Path, *, graph: Traced | None = None, info: dict | None = None, **facts: Any) -> None:
    """Write a traced step with how it is called: what `make_artifact` makes an artifact of. For the arguments see
    `save_artifact`; `info` says `rank` and `world_size` where this is one of several traces of a job."""
    if not hasattr(traced, "gm"):
        raise UsageError(f"an artifact holds how torchtitan calls the step, which {type(traced).__name__} does not say",
                         remedy="give torchtitan's TracedResult; epweave.export writes other graphs")
    export(traced.gm if graph is None else graph, path_of(path), info={**(info or {}), CALLING: encode_calling(traced)},
           **facts)


def make_artifact(traces: Iterable[Path], path: Path, *, pipeline: str | None = None, repair: bool = False,
                  config: dict | None = None) -> dict[str, str]:
    """Make an artifact of the traces of a job (`save_trace`); returns its fingerprint, by field.

    One trace is that of any rank, or for all ranks. Several are those of different ranks: they become one graph for all
    ranks (`epweave generalize`). Raises GraphFileError where what differs between them is not explained, or where
    the ranks do not show what depends on an axis of the job's meshes.
    """
    words = words_of_pipeline(pipeline) if pipeline else None
    paths = [os.fspath(trace) for trace in traces]
    with tempfile.TemporaryDirectory(prefix="epweave-") as folder:
        if len(paths) > 1 or repair:
            step = _generalize(paths, os.path.join(folder, "general.epw"), ["--repair"] if repair else [])
        else:
            step, = paths
        if words:
            rewritten = os.path.join(folder, "rewritten.epw")
            rewrite(step, output=rewritten, **words)
            step = rewritten
        try:
            report, _ = run("epweave", "artifact", "make", step, *_config_words(config), "-o", path_of(path), "-q")
        except DeclinedError as error:
            if error.id == "artifact.baked":
                error.remedy = "repair=True (EPWEAVE_REPAIR=1, --repair) replaces such numbers; or give traces of several ranks"
                error.keep_reproducer(error.reproducer)
            raise
    return report["fingerprint"]


def _generalize(traces: list[str], made: str, words: list[str]) -> str:
    report, _ = run("epweave", "generalize", *traces, *words, "-o", made, "-q", accept=(0, 1))
    if not report["ok"]:
        rows = "; ".join(f'%{x["node"]} {x["argument"]}: {x["why"]}' for x in report["unexplained"])
        what = "numbers of one rank" if len(traces) == 1 else "differences between the ranks"
        raise GraphFileError(f"{what} are not explained: {rows or report['structure']}", remedy=_say_next(report))
    if len(traces) > 1 and any(not axis["observed"] for axis in report["axes"]):
        axes = ", ".join(axis["name"] for axis in report["axes"] if not axis["observed"])
        raise GraphFileError(f"the traces are of ranks {report['ranks']}, which do not differ along {axes}", remedy=_say_next(report))
    return made


def _say_next(report: dict) -> str:
    ranks = {x["next"] for x in [*report["axes"], *report["unexplained"]] if x["next"] is not None} - set(report["ranks"])
    if not ranks:
        return "trace other ranks, too, and give all graphs to epweave generalize"
    return f"trace {'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, sorted(ranks)))}, too"


def check_artifact(path: Path, config: dict | None = None, *, rank: int | None = None,
                   allow: str | Iterable[str] = ()) -> dict[str, str]:
    """The fingerprint of an artifact that fits: content as recorded, the same `config`, a graph for `rank`.

    Raises MismatchError, which names each field with both values. `allow` lists fields that may differ; a text is one.
    """
    words = _config_words(config) + _allow_words(allow)
    if rank is not None:
        words += ["--rank", str(rank)]
    report, _ = run("epweave", "artifact", "check", path_of(path), *words, "-q", accept=(0, 1))
    if not report["ok"]:
        raise MismatchError(path_of(path), report["mismatches"])
    return report["fingerprint"]


def load_artifact(path: Path, config: dict | None = None, *, rank: int | None = None, meshes: Sequence[DeviceMesh] | None = None,
                  device: str | None = None, rank_device: str | None = None, allow: str | Iterable[str] = ()) -> Artifact:
    """Load an artifact for this rank, if it fits (see `check_artifact`); `config` is that of the run.

    `rank` is this process's by default. `meshes`, `device` and `rank_device` are those of `load`.
    """
    path = path_of(path)
    rank = own_rank() if rank is None else rank
    fingerprint = check_artifact(path, config, rank=rank, allow=allow)
    graph = load(path, rank=rank, meshes=meshes, device=device, rank_device=rank_device)
    try:
        calling = _info_of(graph)[CALLING]
    except KeyError:
        raise GraphFileError(f"{path}: does not say how the step is called",
                             remedy="write it with epweave.save_artifact") from None
    try:
        return Artifact(path, graph, fingerprint, calling["state"], calling["num_inputs"], calling["num_outputs"],
                        {i: decode_layout(x) for i, x in calling["inputs"]},
                        {i: decode_layout(x) for i, x in calling["outputs"]},
                        decode(calling["input_spec"]), decode(calling["output_spec"]))
    except GraphFileError as error:
        raise error.within(path) from None
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError, StopIteration) as error:
        raise GraphFileError(f"{path}: says in no known form how the step is called ({type(error).__name__}: {error})",
                             remedy="write it with epweave.save_artifact of this version") from None


def _info_of(graph) -> dict:
    return plain_of(graph.meta[FILE_FACTS].get("info", ("none", True))) or {}


def plain_of(value: tuple):
    """Plain data that a file holds: numbers, strings, lists, dictionaries."""
    from .values import real_of
    kind, x = value
    if kind in ("list", "tuple"):
        return [plain_of(y) for y in x]
    if kind == "dict":
        items = [plain_of(y) for y in x]
        return dict(zip(items[::2], items[1::2]))
    if kind in ("real", "nan"):
        return real_of(value)
    return None if kind == "none" else x
