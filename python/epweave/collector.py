"""Python's garbage collector, held while many objects are made that all stay."""
from __future__ import annotations

import contextlib
import gc


@contextlib.contextmanager
def held():
    """Without collections inside: each would look at all the objects made so far, and free none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
