"""Rewriting, proving and comparing from Python: each function runs a program and gives its report a shape."""
from __future__ import annotations

import collections
import contextlib
import dataclasses
import difflib
import functools
import html
import os
import re
import shutil
import tempfile
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import EpweaveError, UsageError
from .programs import find_program, graph_file, path_of, require_text, run, write_graph

if TYPE_CHECKING:
    from .kinds import Graph, GraphModule, Path


_PASSES = "name passes of epweave, with commas between: 'canonicalize,dce'; functions over graphs are torchtitan's passes"


@functools.cache
def _choices_of_presets(program: str) -> dict[tuple[str, str], list[str]]:
    """What options of presets may be, by preset and option, of the program at this path; those of any value have none."""
    presets = run("epweave", "passes")[0]["presets"]
    return {(preset["name"], option["name"]): option["choices"] for preset in presets for option in preset["options"]}


def pipeline_text(name: str, options: dict) -> str:
    """`name{key=value,...}` as the program takes it: lists in brackets, True and False as the option writes them.

    `grad_accumulation` is the option grad-accumulation; one that is None is left out.
    """
    def quoted(item: str) -> str:
        if item.startswith('"') or not re.search(r"""[\s\[\]{},"\\]""", item):
            return item
        return '"' + re.sub(r'(["\\])', r"\\\1", item) + '"'

    def text(key, value) -> str:
        if isinstance(value, bool):
            choices = _choices_of_presets(find_program("epweave")).get((name, key), [])
            return ("yes" if value else "no") if "yes" in choices else "true" if value else "false"
        if isinstance(value, (list, tuple)):
            return "[" + ",".join(quoted(text(key, x)) for x in value) + "]"
        if callable(value):
            raise UsageError(f"the option {key} of {name} is a text, a number or a list of them, and "
                             f"{type(value).__name__} was given", remedy="epweave passes lists what the option can be")
        return str(value)
    named = {key.replace("_", "-"): value for key, value in options.items() if value is not None}
    words = ",".join(f"{key}={text(key, value)}" for key, value in named.items())
    return f"{name}{{{words}}}" if words else name


@dataclasses.dataclass
class Result:
    """A rewritten graph.

    `path` is its file, which lives as long as this object unless `rewrite` was given a path. `passes` is the log:
    for each pass its name, options, node counts and notes.
    """

    path: str
    pipeline: str
    passes: list[dict] = dataclasses.field(repr=False)
    input_path: str

    @property
    def notes(self) -> list[str]:
        """What the passes said: assumptions, what was left alone and why."""
        return [f"{x['name']}: {note}" for x in self.passes for note in x["notes"]]

    @functools.cached_property
    def graph(self) -> GraphModule:
        """The rewritten graph as a torch.fx.GraphModule; loaded once."""
        return self.to_fx()

    @functools.cached_property
    def plan(self) -> dict:
        """What `chunk` decides about each region and node: `epweave rewrite --print-plan`."""
        return run("epweave", "rewrite", self.input_path, "-p", self.pipeline, "--print-plan")[0]

    @functools.cached_property
    def overlap(self) -> dict:
        """What runs under each token exchange: `epweave overlap`."""
        return run("epweave", "overlap", self.path)[0]

    @functools.cached_property
    def stats(self) -> dict:
        """Counts, flops, bytes, collectives and peak memory: `epweave stats`."""
        return run("epweave", "stats", self.path)[0]

    def to_fx(self, *, device: str | None = None) -> GraphModule:
        """The rewritten graph as a new torch.fx.GraphModule (see `load`)."""
        from .loader import load
        return load(self.path, device=device)

    def save(self, path: Path, *, to: str | None = None) -> None:
        """Write the graph in the form that the path's ending says, or that `to` names (`epweave convert --to`)."""
        run("epweave", "convert", self.path, path_of(path), *(["--to", to] if to is not None else []), "-q")


def rewrite(graph: Graph, pipeline: str | None = None, output: Path | None = None, *, preset: str | None = None,
            verify: str = "each", timeout: float | None = None, keep_reproducer: Path | None = None, **options: Any) -> Result:
    """Run passes over a graph: a path, a torch.fx.GraphModule, a `Step` or a `Result`.

    Give a pipeline ('canonicalize,chunk{roots=layers.*.moe,parts=4}') or the name of a preset, whose options are
    keywords: `rewrite(g, preset="ep-overlap", roots="layers.*.moe", parts=2)`. The result is written to `output`, else
    to a temporary file. Raises DeclinedError where a pass declines the graph, with id, node, module, source, remedy.
    `keep_reproducer` is where what the failing or declining pass was given is written. Without it a bug of epweave alone
    leaves such a file, in the current folder. The error's `reproducer` names it.
    """
    if (pipeline is None) == (preset is None):
        raise UsageError("rewrite takes either a pipeline or a preset", remedy="give one of the two")
    if options and preset is None:
        one = require_text("a pipeline", pipeline, _PASSES)
        given = pipeline_text(one if re.fullmatch(r"[a-z-]+", one) else "PASS", options)
        raise UsageError(f"{', '.join(options)}: options are keywords of a preset, and a pipeline was given",
                         remedy=f"write them into the pipeline: {given!r}")
    require_text("a pipeline" if preset is None else "the name of a preset", pipeline if preset is None else preset, _PASSES)
    if pipeline is not None and not pipeline.strip():
        raise UsageError("the pipeline is empty", remedy=_PASSES)
    choice = ["-p", pipeline] if preset is None else ["--preset", pipeline_text(preset, options)]
    folder = tempfile.mkdtemp(prefix="epweave-")
    try:
        return _rewrite_into(folder, graph, choice, output, _Run(verify, timeout, keep_reproducer))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


class _Run(NamedTuple):
    """How `epweave rewrite` is called."""

    verify: str
    timeout: float | None
    keep_reproducer: Path | None


def rescue_reproducer(error: EpweaveError, folder: str) -> None:
    """Moves the error's reproducer from a temporary folder to the current one, if it is there."""
    if not error.reproducer or os.path.dirname(error.reproducer) != folder:
        return
    try:
        descriptor, path = tempfile.mkstemp(prefix="epweave-", suffix=".reproducer.epw", dir=os.getcwd())
    except OSError:  # a folder that cannot be written
        descriptor, path = tempfile.mkstemp(prefix="epweave-", suffix=".reproducer.epw")
    os.close(descriptor)
    shutil.move(error.reproducer, path)
    error.keep_reproducer(path)


def _rewrite_into(folder: str, graph: Graph, choice: list[str], output: Path | None, how: _Run) -> Result:
    """`rewrite` with its temporary files in `folder`, which goes with the result."""
    if isinstance(graph, (str, os.PathLike)) or isinstance(graph, Result):
        with graph_file(graph) as source:
            pass
    else:
        source = os.path.join(folder, "input.epw")
        write_graph(graph, source)
    target = os.path.join(folder, "output.epw") if output is None else path_of(output)
    words = ["-o", target, "--verify", how.verify, "-q"]
    if how.keep_reproducer is not None:
        words += ["--keep-reproducer", path_of(how.keep_reproducer)]
    try:
        report, _ = run("epweave", "rewrite", source, *choice, *words, timeout=how.timeout)
    except EpweaveError as error:
        rescue_reproducer(error, folder)
        raise error.naming(os.path.join(folder, "input.epw"), "the graph") from None
    result = Result(target, report["pipeline"], report["passes"], source)
    weakref.finalize(result, shutil.rmtree, folder, ignore_errors=True)
    return result


def words_of_pipeline(pipeline: str) -> dict:
    """The keywords of `rewrite` for a pipeline, or a preset with options; a misspelt name is what it is nearest to."""
    require_text("a pipeline", pipeline, _PASSES)
    known = run("epweave", "passes")[0]
    presets, passes = ([x["name"] for x in known[kind]] for kind in ("presets", "passes"))
    name = pipeline.partition("{")[0].strip()
    near = difflib.get_close_matches(name, [*presets, *passes], n=1, cutoff=0.8)
    return {"preset": pipeline} if near and near[0] in presets else {"pipeline": pipeline}


def check_pipeline(pipeline: str, what: str) -> None:
    """UsageError, which calls it `what`, for a pipeline, or a preset with options, that no graph would go through."""
    word, text = next(iter(words_of_pipeline(pipeline).items()))
    try:
        run("epweave", "rewrite", f"--{word}", text, "--print-pipeline")
    except UsageError as error:
        raise error.within(what) from None


@dataclasses.dataclass
class Report:
    """A program's verdict: true where it is good. `details` is the program's JSON."""

    ok: bool
    details: dict = dataclasses.field(repr=False)

    def __bool__(self) -> bool:
        return self.ok

    def __getitem__(self, key: str) -> Any:
        return self.details[key]


@dataclasses.dataclass(repr=False)
class Proof(Report):
    """What `verify` says: `violations`, and of two graphs `assumptions` and the numerics of each output."""

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(self.details[key])} {key}" for key in ("outputs", "assumptions", "violations")
                           if key in self.details)
        return f"Proof(ok={self.ok}: {counts})"

    @property
    def violations(self) -> list[dict]:
        """What is wrong: {"invariant", "message", "node", ..} each; none where `ok`."""
        return self.details.get("violations", [])

    @property
    def assumptions(self) -> list[str]:
        """What the proof of two graphs rests on and does not show."""
        return self.details.get("assumptions", [])

    @property
    def outputs(self) -> list[dict]:
        """Of two graphs, each output of the step with its numerics: {"output", "numerics", ..}."""
        return self.details.get("outputs", [])


def verify(a: Graph, b: Graph | None = None, *, assume_none: bool = False, timeout: float | None = None) -> Proof:
    """Check every invariant of a graph, or, given two, prove that `b` computes what `a` computes."""
    if assume_none and b is None:
        raise UsageError("assume_none is about the proof of two graphs", remedy="give both graphs")
    with graph_file(a) as first, graph_file(b if b is not None else a) as second:
        words = [first] if b is None else [first, second]
        report, _ = run("epweave", "verify", *words, *(["--assume-none"] if assume_none else []), "-q",
                        accept=(0, 1), timeout=timeout)
    return Proof(report["ok"], report)


def verify_ranks(*graphs: Graph, timeout: float | None = None) -> Report:
    """Check that the collectives of the ranks' graphs match: no deadlock between ranks. One graph alone is all ranks'."""
    if not graphs:
        raise UsageError("verify_ranks takes the graphs of the ranks, and none was given",
                         remedy="give one of each rank, or one alone that all ranks run")
    with contextlib.ExitStack() as files:
        paths = [files.enter_context(graph_file(graph)) for graph in graphs]
        report, _ = run("epweave", "verify", "--ranks", *paths, "-q", accept=(0, 1), timeout=timeout)
    return Report(report["ok"], report)


@dataclasses.dataclass
class Difference(Report):
    """What `diff` says; true where the graphs are the same. A notebook shows both side by side."""

    page: str = dataclasses.field(default="", repr=False)

    def _repr_html_(self) -> str:
        return f'<iframe style="width: 100%; height: 40em; border: 1px solid #8888" srcdoc="{html.escape(self.page)}">' \
               "</iframe>"


def diff(a: Graph, b: Graph, *, ignore: str | None = None, timeout: float | None = None) -> Difference:
    """What differs between two graphs, node by node; `ignore` as in `epweave diff --ignore`."""
    more = ["--ignore", ignore] if ignore else []
    with tempfile.TemporaryDirectory(prefix="epweave-") as folder, graph_file(a) as first, graph_file(b) as second:
        page = os.path.join(folder, "page.html")
        report, _ = run("epweave", "diff", first, second, "--html", page, *more, "-q", accept=(0, 1), timeout=timeout)
        with open(page, encoding="utf-8") as f:
            return Difference(report["same"], report, f.read())


def _option_words(options: dict) -> list[str]:
    """Keywords as options of a program: `pin_rows=True` is a flag; a list gives its option once for each item."""
    words = []
    for key, value in options.items():
        name = "--" + key.replace("_", "-")
        if value is True:
            words.append(name)
        elif value is not None and value is not False:
            for item in value if isinstance(value, (list, tuple)) else (value,):
                words += [name, os.fspath(item) if isinstance(item, os.PathLike) else str(item)]
    return words


@dataclasses.dataclass(repr=False)
class Check(Report):
    """What `epweave-replay check` says: how each output of each rank compares; true where the verdict is `same`."""

    def __repr__(self) -> str:
        others = collections.Counter(output["verdict"] for output in self.details["outputs_not_equal"])
        counts = [f"{self.details['outputs'] - others.total()} outputs equal",
                  *(f"{count} {verdict}" for verdict, count in sorted(others.items()))]
        return f"Check(verdict={self.details['verdict']!r}: {', '.join(counts)})"


def replay_check(a: Graph, b: Graph, *, ranks: int | None = None, seed: int = 0, timeout: float | None = None,
                 **options: Any) -> Check:
    """Execute both graphs on virtual ranks on the CPU and compare every output and node.

    Further options are those of `epweave-replay check`: `data="integer"`, `memory=16`, `poison=True`,
    `inputs=["a.safetensors", "b.safetensors"]`. One that is None or False is left out.
    """
    words = ["--seed", str(seed), *_option_words({"ranks": ranks, **options})]
    with graph_file(a) as first, graph_file(b) as second:
        report, _ = run("epweave-replay", "check", first, second, *words, "-q", accept=(0, 1), timeout=timeout)
    return Check(report["verdict"] == "same", report)
