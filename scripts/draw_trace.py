#!/usr/bin/env python3
"""Draw one region of a trace that `epweave overlap --trace` wrote, as an SVG file.

    epweave overlap after.epw --before before.epw --trace trace.json
    scripts/draw_trace.py trace.json layers.1.moe forward region.svg

One row per stream that takes part, for each graph of the trace. From left to right is the order of issue, one
column per kernel or launch of the module, however long it takes; an exchange's bar ends where it is waited for.
Coloured by part; grey bars belong to no part.
"""
import argparse
import bisect
import html
import json
import pathlib

COLOURS = ("#4878a8", "#d8843b", "#5b9a68", "#a05a8c", "#8a7a4a", "#4aa0a0", "#b05050", "#707070")
LABEL_WIDTH, CHART_WIDTH, ROW, GAP, TOP = 150, 1050, 26, 34, 22
LETTER = 6.2  # width of a letter of the bars' labels


def read_trace(path):
    """Names of processes and tracks, and the bars."""
    names, bars = {}, []
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "M":
            names[(event["pid"], event["tid"])] = event["args"]["name"]
        else:
            bars.append(event)
    return names, bars


def is_of_region(bar, root, direction):
    module = bar["args"].get("module") or ""
    return (module == root or module.startswith(root + ".")) and bar["args"].get("direction") == direction


def labels_of(bar):
    """From long to short."""
    part, exchange = bar["args"].get("part"), bar["args"].get("token_exchange")
    if exchange is None:
        return []
    return [f"{exchange} {part}", f"{exchange[0]}{part}"]


def draw_bar(bar, columns, width_of_column, top):
    part = bar["args"].get("part")
    first, last = (bisect.bisect_left(columns, time) for time in (bar["ts"], bar["ts"] + bar["dur"]))
    x, width = LABEL_WIDTH + first * width_of_column, (last - first) * width_of_column
    colour = "#c8c8c8" if part is None else COLOURS[part % len(COLOURS)]
    yield (f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{ROW - 6}" fill="{colour}" stroke="#fff" '
           f'stroke-width="0.5"><title>{html.escape(bar["name"])} {html.escape(bar["args"]["op"])}</title></rect>')
    for text in labels_of(bar):
        if len(text) * LETTER + 4 < width:
            yield f'<text x="{x + 3:.1f}" y="{top + 14}" fill="#fff">{html.escape(text)}</text>'
            break


def draw_process(names, bars, top):
    """The lines of one graph's picture, and its height."""
    process = bars[0]["pid"]
    columns = sorted({bar["ts"] for bar in bars})
    width_of_column = CHART_WIDTH / len(columns)
    lines = [f'<text class="head" x="0" y="{top + 14}">{html.escape(names[(process, 0)])}</text>']
    y = top + TOP
    for track in sorted({bar["tid"] for bar in bars}):
        lines.append(f'<text x="0" y="{y + 14}">{html.escape(names[(process, track)])}</text>')
        for bar in (bar for bar in bars if bar["tid"] == track):
            lines += draw_bar(bar, columns, width_of_column, y)
        y += ROW
    return lines, y + GAP - top


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=pathlib.Path, help="what epweave overlap --trace wrote")
    parser.add_argument("root", help="the module: layers.1.moe")
    parser.add_argument("direction", choices=("forward", "backward"), help="forward or backward")
    parser.add_argument("svg", type=pathlib.Path, help="file to write")
    args = parser.parse_args()
    try:
        names, bars = read_trace(args.trace)
    except OSError as error:
        raise SystemExit(f"draw_trace.py: {args.trace}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise SystemExit(f"draw_trace.py: {args.trace}: no trace of epweave overlap --trace") from None
    lines, top = [], 0
    for process in sorted({bar["pid"] for bar in bars}):
        chosen = [bar for bar in bars if bar["pid"] == process and is_of_region(bar, args.root, args.direction)
                  and names[(process, bar["tid"])] != "host"]
        if not chosen:
            raise SystemExit(f"draw_trace.py: no bar of {args.root} {args.direction} in {names[(process, 0)]}")
        drawn, height = draw_process(names, chosen, top)
        lines += drawn
        top += height
    args.svg.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LABEL_WIDTH + CHART_WIDTH} {top}" '
        'font-family="sans-serif" font-size="11">\n<style>.head { font-weight: bold }</style>\n'
        '<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(lines) + "\n</svg>\n")


if __name__ == "__main__":
    main()
