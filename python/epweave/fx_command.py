"""The command behind scripts/epweave_fx.py: dumps to graph files and back."""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import traceback

from .dump import dump_from_file, file_from_dump
from .errors import GraphFileError, full_text
from .files import read_bytes, read_file, write_bytes, write_file


DESCRIPTION = """Carry training graphs between "fx-dump-1" JSON and the epweave graph file.

`-` is stdin or stdout. Input is decompressed when it is gzip; output is gzip when its
name ends in .gz. Exit codes: 0 fine, 2 usage, 3 unreadable or invalid input, 5 internal
error. The format of the graph file is specified by proto/epweave.proto.
"""


def _run_from_dump(source: str, target: str) -> None:
    try:
        dump = json.loads(read_bytes(source))
    except (ValueError, RecursionError) as error:
        raise GraphFileError(f"{source}: is not JSON ({error}); give an fx-dump-1 file") from None
    except GraphFileError as error:
        raise error.within(source) from None
    try:
        message = file_from_dump(dump)
    except RecursionError:
        raise GraphFileError(f"{source}: is nested too deeply; no traced graph is") from None
    except GraphFileError as error:
        raise error.within(source) from None
    write_file(message, target)


def _run_to_dump(source: str, target: str) -> None:
    message = read_file(source)
    if message.get("passes"):
        print(f"epweave_fx: {source}: a dump has no place for the pipeline log and provenance;"
              " left out", file=sys.stderr)
    try:
        text = json.dumps(dump_from_file(message), separators=(",", ":"))
    except GraphFileError as error:
        raise error.within(source) from None
    try:
        write_bytes(text.encode(), target)
    except GraphFileError as error:
        raise error.within(target) from None


def _name(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("the name is empty")
    return text


def _drop_output() -> None:
    """What standard output did not take is not tried again when the process ends."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # none, closed, or one of Python's own
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(arguments: list[str] | None = None) -> int:
    """Runs the command of these arguments, else of the process's; its exit code (see DESCRIPTION)."""
    parser = argparse.ArgumentParser(
        prog="epweave_fx.py", description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (
            ("from-dump", _run_from_dump, "write a graph file from an fx-dump-1 JSON file"),
            ("to-dump", _run_to_dump, "write an fx-dump-1 JSON file from a graph file")):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("input", metavar="IN", type=_name, help="input file, - for stdin")
        command.add_argument("output", metavar="OUT", type=_name, help="output file, - for stdout")
        command.set_defaults(run=run)
    options = parser.parse_args(arguments)
    if options.run is _run_from_dump and options.output == "-" and sys.stdout is not None and sys.stdout.isatty():
        parser.error("the graph file is binary and stdout is a terminal; redirect it")
    try:
        options.run(options.input, options.output)
    except GraphFileError as error:
        print(f"epweave_fx: {full_text(error)}", file=sys.stderr)
        if options.output == "-":
            _drop_output()
        return 3
    except Exception:
        traceback.print_exc()
        print("epweave_fx: internal error (please report it)", file=sys.stderr)
        return 5
    return 0
