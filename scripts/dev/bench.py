#!/usr/bin/env python3
"""Measure wall time and peak memory of load, verify, each pass and write.

    bench.py [--preset PRESET | -p PIPELINE] [--repeat N] [--growth REGEX] [--json FILE] GRAPH...

GRAPH is a graph file, a dump (*.json.gz, format fx-dump-1; converted first, not measured), or a folder of
them. Figures are medians over N runs of one process each, in rounds over all graphs; times in milliseconds,
memory in MiB (of the process up to there). `wall` is the whole process, file to file, `processor` its user and system
time. `bare protobuf` is what protobuf alone takes to parse the file and to serialise the message (least of five): the
floor of read and write; left out where the program bare_protobuf does not lie beside epweave or the file is compressed.

Growth: over the graphs whose name matches --growth (default: the depth series), the exponent e of
time ~ nodes^e by least squares, for each pass and for chunk + overlap-ep together. Of the least times, which
other programs disturb least.
"""
import argparse
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONVERTER = ROOT / "scripts" / "epweave_fx.py"
SCHEDULED = ("chunk", "overlap-ep")


def measure(command, allowed=(0,)):
    """(exit code, stdout, wall ms, peak MiB, processor ms) of one process."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        wall = (time.perf_counter() - start) * 1e3
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode not in allowed:
            raise SystemExit(f"{' '.join(command)}: exit {process.returncode}\n{err.read().decode()}")
        return process.returncode, out.read(), wall, usage.ru_maxrss / 1024, (usage.ru_utime + usage.ru_stime) * 1e3


def bare_protobuf(epweave, graph):
    """[parse ms, serialise ms] of protobuf alone, or None."""
    program = pathlib.Path(epweave).with_name("bare_protobuf")
    if not program.exists() or graph.name.endswith(".gz"):
        return None
    return [float(word) for word in measure([str(program), str(graph)])[1].split()]


def graph_files(paths, folder):
    """(name, graph file) for each graph, dumps converted into `folder`."""
    found = []
    for path in paths:
        if path.is_dir():
            found += sorted(p for p in path.iterdir() if p.name.endswith((".json.gz", ".epw", ".epw.gz")))
        else:
            found.append(path)
    for path in found:
        name = re.sub(r"\.(json|epw)(\.gz)?$", "", path.name)
        if path.name.endswith(".json.gz"):
            graph = folder / f"{name}.epw"
            subprocess.run([sys.executable, CONVERTER, "from-dump", path, graph], check=True)
            yield name, graph
        else:
            yield name, path


class Runs:
    """What was measured of one graph."""

    def __init__(self, graph):
        self.graph, self.declined, self.reports, self.walls, self.peaks, self.verified = graph, None, [], [], [], []
        self.processor, self.floor = [], None

    def add(self, options, folder):
        """One more run, unless a pass declines the graph."""
        if self.declined:
            return
        output = folder / "out.epw"
        command = [str(options.epweave), "rewrite", str(self.graph), "-o", str(output), "--time-passes", "--json", "-q"]
        command += ["-p", options.pipeline] if options.pipeline else ["--preset", options.preset]
        code, out, wall, peak, processor = measure(command, allowed=(0, 4))
        report = json.loads(out)
        if code == 4:
            self.declined = report["error"]["id"]
            return
        output.unlink()
        self.reports.append(report)
        self.walls.append(wall)
        self.peaks.append(peak)
        self.processor.append(processor)
        self.floor = self.floor or bare_protobuf(options.epweave, self.graph)
        self.verified.append(measure([str(options.epweave), "verify", str(self.graph)], allowed=(0, 1)))

    def row(self):
        """Medians, or the reason for which a pass declined the graph."""
        if self.declined:
            return {"declined": self.declined}
        times = [report["times"] for report in self.reports]
        passes = []
        for i, row in enumerate(times[0]["passes"]):
            entry = {key: statistics.median(one["passes"][i][key] for one in times)
                     for key in ("run_ms", "verify_ms", "peak_mib")}
            passes.append({"name": row["name"], "least_ms": min(one["passes"][i]["run_ms"] for one in times)} | entry)
        return {"nodes": self.reports[0]["input"]["nodes"], "nodes_after": self.reports[0]["output"]["nodes"],
                "wall_ms": statistics.median(self.walls), "least_wall_ms": min(self.walls),
                "processor_ms": statistics.median(self.processor), "least_processor_ms": min(self.processor),
                "peak_mib": statistics.median(self.peaks), "bare_protobuf_ms": self.floor,
                "read_ms": statistics.median(one["read_ms"] for one in times),
                "write_ms": statistics.median(one["write_ms"] for one in times),
                "passes": passes, "verify_command_ms": statistics.median(run[2] for run in self.verified),
                "verify_command_mib": statistics.median(run[3] for run in self.verified)}


def growth_exponent(points):
    """e of y ~ x^e; None for fewer than two sizes."""
    logs = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len({x for x, _ in logs}) < 2:
        return None
    mean_x, mean_y = (statistics.fmean(column) for column in zip(*logs))
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)


def measure_growth(rows):
    """Exponents by pass over the rows of the series."""
    series = [row for row in rows if "nodes" in row]
    names = [entry["name"] for entry in series[0]["passes"]] if series else []
    growth = {}

    def time_of(row, wanted):
        return sum(entry["least_ms"] for entry in row["passes"] if entry["name"] in wanted)

    for name in dict.fromkeys(names):
        growth[name] = growth_exponent([(row["nodes"], time_of(row, [name])) for row in series])
    if set(SCHEDULED) <= set(names):
        growth[" + ".join(SCHEDULED)] = growth_exponent([(row["nodes"], time_of(row, SCHEDULED)) for row in series])
    growth["wall"] = growth_exponent([(row["nodes"], row["least_wall_ms"]) for row in series])
    return growth


def print_row(name, row):
    if "declined" in row:
        print(f"{name}: declined ({row['declined']})\n")
        return
    print(f"{name}: {row['nodes']} -> {row['nodes_after']} nodes")
    print(f"  {'':16}{'ms':>10}{'verify ms':>11}{'peak MiB':>10}")
    print(f"  {'read':16}{row['read_ms']:>10.2f}")
    for entry in row["passes"]:
        print(f"  {entry['name']:16}{entry['run_ms']:>10.2f}{entry['verify_ms']:>11.2f}{entry['peak_mib']:>10.1f}")
    print(f"  {'write':16}{row['write_ms']:>10.2f}")
    print(f"  {'wall':16}{row['wall_ms']:>10.2f}{'':11}{row['peak_mib']:>10.1f}")
    print(f"  {'processor':16}{row['processor_ms']:>10.2f}")
    if row["bare_protobuf_ms"]:
        parse, serialise = row["bare_protobuf_ms"]
        print(f"  bare protobuf: parse {parse:.2f}, serialise {serialise:.2f}")
    print(f"  {'verify command':16}{row['verify_command_ms']:>10.2f}{'':11}{row['verify_command_mib']:>10.1f}\n",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", type=pathlib.Path, metavar="GRAPH")
    parser.add_argument("--epweave", type=os.path.abspath, default=ROOT / "build/release/bin/epweave")
    parser.add_argument("--preset", default="ep-overlap{roots=layers.*.moe,dim=batch,parts=2}")
    parser.add_argument("-p", "--pipeline", help="instead of a preset")
    parser.add_argument("--repeat", type=int, default=10, help="runs per graph (%(default)s)")
    parser.add_argument("--growth", default=r"^dsv3_debug_(ep2|L\d+)\.1b_remat$", metavar="REGEX")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the figures here too")
    options = parser.parse_args()

    rows = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        runs = {name: Runs(graph) for name, graph in graph_files(options.graphs, folder)}
        for _ in range(options.repeat):
            for of_graph in runs.values():
                of_graph.add(options, folder)
        for name, of_graph in runs.items():
            rows[name] = of_graph.row()
            print_row(name, rows[name])
    growth = measure_growth([row for name, row in rows.items() if re.search(options.growth, name)])
    if any(value is not None for value in growth.values()):
        print(f"growth over {options.growth}: time ~ nodes^e")
        for name, exponent in growth.items():
            print(f"  {name:24}{'-' if exponent is None else f'{exponent:.3f}':>8}")
    if options.json:
        options.json.write_text(json.dumps({"repeat": options.repeat, "graphs": rows, "growth": growth}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
