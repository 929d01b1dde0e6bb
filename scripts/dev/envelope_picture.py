#!/usr/bin/env python3
"""Draws what a joint graph may save for backward against what that costs to compute again.

    python3 scripts/dev/envelope_picture.py G.epw -o docs/envelope.svg [--epweave BIN]

Above: each choice by bytes saved and seconds computed again; the line is `partition --policy exact` at shares of the
budget, and the bound beside it what no choice can be under. Below: how much of it each layer saves; then memory over a step,
as it is and with recomputation by policies. G is a joint graph behind dce,canonicalize,dedup-unshard. The numbers are those
of `epweave partition --report` and `epweave simulate --trace`.
"""
import argparse
import html
import json
import math
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
POLICIES = ("default", "eager", "full")
SHARES = [round(1 - 0.05 * i, 2) for i in range(21)]
WIDTH, LEFT, TOP, PLOT_W, PLOT_H, CELL_H = 900, 70, 40, 640, 300, 20
MEMORY_H, COLUMNS = 200, 320  # of the plot of memory; points of a line, each the largest of its time
COLORS = ("#444", "#4878a8", "#d8843b", "#5a9a5a")
MIB = 2 ** 20


class Drawer:
    def __init__(self):
        self.parts = []

    def add(self, text):
        self.parts.append(text)

    def text(self, x, y, said, **style):
        extra = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in style.items())
        self.add(f'<text x="{x:.1f}" y="{y:.1f}"{extra}>{html.escape(said)}</text>')

    def line(self, points, color, dash=""):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.add(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5"'
                 + (f' stroke-dasharray="{dash}"' if dash else "") + "/>")


def partition(epweave, graph, folder, *words):
    report = folder / "report.json"
    subprocess.run([epweave, "partition", graph, "--fwd", folder / "f.epw", "--bwd", folder / "b.epw", "--report", report,
                    "-q", *words], check=True)
    return json.loads(report.read_text())


def measure(epweave, graph):
    """{name: report} of the choices, and the reports of `exact` by share."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        choices = {"min-cut": partition(epweave, graph, folder, "--policy", "min-cut")}
        for policy in POLICIES:
            tagged = folder / "tagged.epw"
            subprocess.run([epweave, "rewrite", graph, "-p", f"memory-policy{{policy={policy}}}", "-o", tagged, "-q"],
                           check=True)
            choices[policy] = partition(epweave, tagged, folder, "--policy", "tags")
        choices["exact"] = partition(epweave, graph, folder, "--policy", "exact")
        for policy in POLICIES:
            budget = f"{choices[policy]['saved_bytes'] // MIB}MiB"
            choices[f"exact, bytes of {policy}"] = partition(epweave, graph, folder, "--policy", "exact", "--budget", budget)
        curve = [partition(epweave, graph, folder, "--policy", "exact", "--budget", str(share)) for share in SHARES]
    return choices, curve


def measure_memory(epweave, graph):
    """{name: [(seconds, bytes)]} of a step as it is, and with what each policy computes again."""
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        trace, made = pathlib.Path(temporary) / "trace.json", pathlib.Path(temporary) / "made.epw"
        for policy in (None, *POLICIES):
            if policy:
                subprocess.run([epweave, "rewrite", graph, "-p", f"memory-policy{{policy={policy}}},recompute", "-o", made, "-q"],
                               check=True)
            subprocess.run([epweave, "simulate", made if policy else graph, "--trace", trace, "-q"], check=True,
                           stdout=subprocess.DEVNULL)
            events = json.loads(trace.read_text())["traceEvents"]
            found[policy or "as it is"] = [(e["ts"] * 1e-6, e["args"]["bytes"]) for e in events if e["name"] == "live bytes"]
    return found


def layers_of(epweave, graph):
    """{name of a value: its layer; None: it is in none}."""
    text = subprocess.run([epweave, "convert", graph, "-", "--to", "text", "-q"], check=True, capture_output=True, text=True)
    found = {}
    for name, layer in re.findall(r"^  %(\S+) = .*? @layers\.(\d+)", text.stdout, re.MULTILINE):
        found[name] = int(layer)
    return found


def ticks(most):
    """Round numbers from 0, five or so."""
    step = 10 ** math.floor(math.log10(most / 5))
    step = next(step * k for k in (1, 2, 5, 10) if most / (step * k) <= 6)
    return [round(step * i, 9) for i in range(int(most / step) + 1)]


def draw_envelope(draw, choices, curve):
    drawn = {name: report for name, report in choices.items() if "," not in name}
    most_x = max(r["saved_bytes"] for r in [*drawn.values(), *curve]) / MIB * 1.04
    most_y = max(r["recompute_seconds"] for r in [*drawn.values(), *curve]) * 1e3 * 1.04
    place = lambda mib, ms: (LEFT + mib / most_x * PLOT_W, TOP + PLOT_H - ms / most_y * PLOT_H)
    draw.text(LEFT, 20, "saved for backward (MiB) against computed again (ms)", font_weight="bold")
    draw.line([(LEFT, TOP), (LEFT, TOP + PLOT_H), (LEFT + PLOT_W, TOP + PLOT_H)], "#444")
    for tick in ticks(most_x):
        draw.text(place(tick, 0)[0], TOP + PLOT_H + 16, f"{tick:,g}", text_anchor="middle")
    for tick in ticks(most_y):
        draw.text(LEFT - 6, place(0, tick)[1] + 4, f"{tick:,g}", text_anchor="end")
    draw.line([place(r["saved_bytes"] / MIB, r["recompute_seconds"] * 1e3) for r in curve], "#4878a8")
    draw.line([place(r["saved_bytes"] / MIB, r["bound_seconds"] * 1e3) for r in curve if r["bound_seconds"]], "#888", "3 3")
    for name, r in drawn.items():
        x, y = place(r["saved_bytes"] / MIB, r["recompute_seconds"] * 1e3)
        draw.add(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{"#4878a8" if name == "exact" else "#d8843b"}"/>')
        draw.text(x + 7, y - 5, f"{name}: {r['saved_bytes'] / MIB:,.0f} MiB, {r['recompute_seconds'] * 1e3:.3g} ms")
    draw.text(LEFT + PLOT_W * 0.55, TOP + 14, "line: exact, by budget; dashed, where it is apart: the lower bound", fill="#444")


def draw_layers(draw, choices, layers, y):
    count = 1 + max(layers.values())
    cell = min(40.0, (WIDTH - 190) / (count + 1))
    draw.text(0, y, "MiB saved by each layer; the last column: elsewhere", font_weight="bold")
    rows = []
    for name, report in choices.items():
        sums = [0.0] * (count + 1)
        for value in {v["storage"]: v for v in reversed(report["saved"])}.values():
            if value["kind"] in ("activation", "gathered"):
                layer = layers.get(value["name"])
                sums[count if layer is None else layer] += value["bytes"] / MIB
        rows.append((name, sums))
    most = max(max(sums[:-1]) for _, sums in rows)
    for i, (name, sums) in enumerate(rows):
        top = y + 10 + i * CELL_H
        draw.text(0, top + 14, name)
        for k, amount in enumerate(sums):
            shade = 255 - int(min(1.0, amount / most) * 150)
            x = 150 + k * cell
            draw.add(f'<rect x="{x:.1f}" y="{top}" width="{cell - 1:.1f}" height="{CELL_H - 2}" fill="rgb({shade},{shade},255)">'
                     f"<title>{html.escape(name)}, {'elsewhere' if k == count else f'layer {k}'}: {amount:,.1f} MiB</title></rect>")
            if cell >= 18:
                draw.text(x + cell / 2, top + 13, f"{amount:.1f}" if 0.05 <= amount < 100 else f"{amount:.0f}", text_anchor="middle",
                          font_size="8")
    return y + 10 + len(rows) * CELL_H


def draw_memory(draw, lines, y):
    draw.text(0, y, "memory over a step (GiB against ms)", font_weight="bold")
    top, base = y + 14, y + 14 + MEMORY_H
    most_x = max(line[-1][0] for line in lines.values())
    most_y = max(amount for line in lines.values() for _, amount in line)
    draw.line([(LEFT, top), (LEFT, base), (LEFT + PLOT_W, base)], "#444")
    for tick in ticks(most_x * 1e3):
        draw.text(LEFT + tick * 1e-3 / most_x * PLOT_W, base + 16, f"{tick:,g}", text_anchor="middle")
    for tick in ticks(most_y / 2**30):
        draw.text(LEFT - 6, base - tick * 2**30 / most_y * MEMORY_H + 4, f"{tick:,g}", text_anchor="end")
    for i, (name, line) in enumerate(lines.items()):
        columns = {}
        for seconds, amount in line:
            at = int(seconds / most_x * (COLUMNS - 1))
            columns[at] = max(columns.get(at, 0), amount)
        draw.line([(LEFT + at / (COLUMNS - 1) * PLOT_W, base - amount / most_y * MEMORY_H)
                   for at, amount in sorted(columns.items())], COLORS[i])
        peak = max(amount for _, amount in line) / 2**30
        draw.text(LEFT + PLOT_W + 8, top + 14 + 16 * i, f"{name}: {peak:.1f} GiB", fill=COLORS[i])
    return base + 24


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=pathlib.Path)
    parser.add_argument("-o", dest="output", type=pathlib.Path, required=True)
    parser.add_argument("--epweave", default=ROOT / "build/release/bin/epweave")
    options = parser.parse_args()
    choices, curve = measure(options.epweave, options.graph)
    draw = Drawer()
    draw_envelope(draw, choices, curve)
    height = draw_layers(draw, choices, layers_of(options.epweave, options.graph), TOP + PLOT_H + 60)
    height = draw_memory(draw, measure_memory(options.epweave, options.graph), height + 30)
    options.output.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"'
                              ' font-size="11">\n<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(draw.parts)
                              + "\n</svg>\n")


if __name__ == "__main__":
    main()
