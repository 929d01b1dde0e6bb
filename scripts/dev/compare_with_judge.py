#!/usr/bin/env python3
"""Compare `epweave simulate` with the judge of the overlap specification, graph by graph.

    compare_with_judge.py --judge tools/judge.py --graphs graphs [NAME ...] [--set key=value ...] [--bounds]
                          [--sweep key=value,value,... ...]

For each dump NAME.json.gz: both price and simulate it in its order. A figure agrees within 0.01 ms or 0.01 GiB; a bound of
ours may be larger (joints), not smaller, and no bound is above what contains it or above the makespan. `--sweep` repeats
this for each value of each parameter that it names, as `--sweep nvlink_a2a=1e8,1e9 --sweep nic=1e9`. The judge takes a view's storage from its input that comes first in the order, which
is a number where sizes are numbers that nodes compute; so its storages end early there. `peak` is compared with the
judge's where it takes it from the view's first argument; `peak as published` shows the judge's own figure where it differs.

Exit codes: 0 all agree, 1 some do not, 2 usage.
"""
import argparse
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONVERTER = ROOT / "scripts/epweave_fx.py"
FIGURES = ["makespan_ms", "compute_ms", "comm_ms", "exposed_ms", "idle_ms"]


def load_judge(path, corrected):
    text = path.read_text().split("if __name__ ==")[0]
    if corrected:
        published = "r = self.roots[x.deps[0]] if x.deps else ()"
        if published not in text:
            raise SystemExit(f"{path}: not the judge that this script knows")
        text = text.replace(published, "r = self.roots[x.ins[0]] if x.deps else ()")
    name = "judge_corrected" if corrected else "judge_published"
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, str(path), "exec"), module.__dict__)  # the judge is a script, and one line of it is replaced
    return module


def judge(modules, path, sets, with_bounds):
    published, corrected = modules
    kinds = {f.name: type(f.default) for f in published.fields(published.Config)}
    values = {key: kinds[key](float(value)) for key, value in (entry.split("=") for entry in sets)}
    with gzip.open(path, "rt") as file:
        dump = json.load(file)
    graph = published.Graph(dump, published.Config(**values))
    run = published.simulate(graph)
    metrics = published.metrics(graph, run)
    result = {f"{key}_ms": metrics[key] * 1e3 for key in ("makespan", "compute", "comm", "exposed", "idle")}
    result["hidden"] = metrics["hidden"]
    result["published_peak"] = published.peak_memory(graph)[0]
    result["peak"] = corrected.peak_memory(corrected.Graph(dump, corrected.Config(**values)))[0]
    result["unknown_group"] = sum(x.kind == "comm" and x.pg == "?" for x in graph.nodes)
    result["unknown_symbols"] = len(graph.sym.missing)
    if with_bounds:
        result["bound"] = published.lower_bounds(graph)["lb"] * 1e3
    return result


def simulate(epweave, path, sets, folder):
    graph = folder / "graph.epw"
    subprocess.run([sys.executable, CONVERTER, "from-dump", path, graph], check=True, capture_output=True)
    words = [epweave, "simulate", graph, "--json"]
    for entry in sets:
        words += ["--set", entry]
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    return json.loads(result.stdout) if result.returncode == 0 else {"error": result.stderr or result.stdout}


def differences(ours, theirs):
    found = [f"{key} {ours[key]:.4f}, judge {theirs[key]:.4f}" for key in FIGURES if abs(ours[key] - theirs[key]) > 0.01]
    if abs(ours["peak_bytes"] - theirs["peak"]) > 0.01 * 2**30:
        found.append(f"peak {ours['peak_bytes']}, judge {theirs['peak']}")
    if "bound" in theirs and ours["bounds"]["lower_bound_ms"] < theirs["bound"] - 0.01:
        found.append(f"bound {ours['bounds']['lower_bound_ms']:.4f}, judge {theirs['bound']:.4f}")
    return found


def misplaced(ours):
    """Each bound contains those in front of it, and the makespan of an order is above all of them."""
    bounds = ours["bounds"]
    found = []
    for rising in (["critical_path_ms", "joints_ms"], ["load_ms", "head_load_tail_ms", "joints_ms", "lower_bound_ms"],
                   ["lower_bound_ms", "recompute_behind_forward_ms"]):
        for below, above in zip(rising, rising[1:]):
            if bounds[below] > bounds[above] + 1e-5:
                found.append(f"{below} {bounds[below]:.6f} is above {above} {bounds[above]:.6f}")
    if bounds["lower_bound_ms"] > ours["makespan_ms"] + 1e-5:
        found.append(f"lower_bound_ms {bounds['lower_bound_ms']:.6f} is above the makespan {ours['makespan_ms']:.6f}")
    return found


def list_settings(options):
    if not options.sweeps:
        return [options.sets]
    swept = [(key, value) for key, values in (entry.split("=") for entry in options.sweeps) for value in values.split(",")]
    return [[*options.sets, f"{key}={value}"] for key, value in swept]


def row(name, ours, theirs):
    gib = ours["peak_bytes"] / 2**30
    text = f"{name:44s}" + "".join(f"{ours[key]:11.2f}" for key in FIGURES)
    text += f"{100 * ours['hidden']:8.1f}{ours['bounds']['lower_bound_ms']:11.2f}{gib:8.2f}"
    if ours["peak_bytes"] == theirs["peak"]:
        text += "  peak equal to the byte"
    if theirs["published_peak"] != theirs["peak"]:
        text += f", as published {theirs['published_peak'] / 2**30:.4f} (ours {gib:.4f})"
    return text


def compare(modules, options, name, sets):
    """Prints the row of a graph; whether all agrees."""
    if options.sweeps:
        print(" ".join(sets))
    path = options.graphs / f"{name}.json.gz"
    with tempfile.TemporaryDirectory() as folder:
        ours = simulate(options.epweave, path, sets, pathlib.Path(folder))
    if "error" in ours:
        print(f"{name:44s} {ours['error'].strip().splitlines()[0]}")
        return False
    theirs = judge(modules, path, sets, options.bounds)
    print(row(name, ours, theirs), flush=True)
    found = misplaced(ours)
    if theirs["unknown_group"]:
        print(f"    not compared: the judge does not know the groups of {theirs['unknown_group']} collectives")
    elif theirs["unknown_symbols"]:
        print(f"    not compared: the judge has a default for {theirs['unknown_symbols']} symbols")
    else:
        found += differences(ours, theirs)
    for line in found:
        print(f"    DIFFERS {line}")
    return not found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--judge", type=pathlib.Path, required=True)
    parser.add_argument("--graphs", type=pathlib.Path, required=True)
    parser.add_argument("--epweave", type=pathlib.Path, default=ROOT / "build/release/bin/epweave")
    parser.add_argument("--set", action="append", default=[], dest="sets", metavar="KEY=VALUE")
    parser.add_argument("--sweep", action="append", default=[], dest="sweeps", metavar="KEY=VALUE,...")
    parser.add_argument("--bounds", action="store_true", help="the judge's bounds too, which take it minutes on large graphs")
    options = parser.parse_args()
    modules = load_judge(options.judge, False), load_judge(options.judge, True)
    names = options.names or sorted(p.name.removesuffix(".json.gz") for p in options.graphs.glob("*.json.gz"))
    print(f"{'graph':44s}" + "".join(f"{key.removesuffix('_ms'):>11s}" for key in FIGURES) + "  hidden      bound     GiB")
    runs = [(name, sets) for name in names for sets in list_settings(options)]
    wrong = sum(not compare(modules, options, name, sets) for name, sets in runs)
    print(f"{len(runs)} graphs, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
