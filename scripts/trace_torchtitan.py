#!/usr/bin/env python3
"""Trace one training step of a torchtitan model into a graph file: `python -m epweave.trace_torchtitan` of this checkout
or installation."""
import sys

import epweave_fx  # noqa: F401  finds the package
from epweave.trace_torchtitan import main, parse_options, trace_step  # noqa: F401

if __name__ == "__main__":
    sys.exit(main())
