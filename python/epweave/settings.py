"""The environment of the torchtitan drop-in, and what can be seen to be wrong in it before anything is traced.

`epweave.torchtitan` says what the variables mean.
"""
from __future__ import annotations

import difflib
import math
import os

from .api import check_pipeline
from .errors import UsageError
from .halves import check_policy

_SETTINGS = ("PIPELINE", "BEFORE", "AFTER", "THEN", "KEEP", "PARTITION", "VERIFY", "PRECOMPILE", "REPAIR", "TRACE", "ARTIFACT",
             "TIMEOUT")
_SECONDS_OF_A_PROGRAM = 600.0  # 671B takes 2


def is_set(variable: str) -> bool:
    """A switch of the environment: 1 is on; 0, nothing or no variable is off. UsageError for any other value."""
    value = os.environ.get(variable, "")
    if value not in ("", "0", "1"):
        raise UsageError(f"{variable} is {value!r}", remedy="set it to 1, or to 0")
    return value == "1"


def seconds_of_a_program() -> float:
    """How long a program of a step may run: EPWEAVE_TIMEOUT. UsageError where that is no number above 0."""
    value = os.environ.get("EPWEAVE_TIMEOUT") or _SECONDS_OF_A_PROGRAM
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UsageError(f"EPWEAVE_TIMEOUT is {value!r}", remedy="set it to a number of seconds above 0")
    return seconds


def _make_folder(variable: str) -> None:
    """Makes the folder that a variable names, if it is set."""
    if folder := os.environ.get(variable):
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{variable}: there can be no folder {folder}: {error.strerror}",
                             remedy="name one that can be made and written") from None


def check_environment() -> None:
    """Refuses what would be passed over in silence, or fail when the step is traced: a misspelt variable, a switch that is
    neither on nor off, a time that is none, a pipeline or policy that is none, a folder that cannot be made, programs that are not there."""
    for variable in os.environ:
        prefix, _, name = variable.partition("_")
        near = difflib.get_close_matches(name, _SETTINGS, n=1, cutoff=0.8) if prefix == "EPWEAVE" else []
        if near and name not in _SETTINGS:
            raise UsageError(f"there is no variable {variable}", remedy=f"did you mean EPWEAVE_{near[0]}?")
    for switch in ("EPWEAVE_VERIFY", "EPWEAVE_REPAIR"):
        is_set(switch)
    seconds_of_a_program()
    for variable in ("EPWEAVE_PIPELINE", "EPWEAVE_THEN"):
        check_pipeline(os.environ.get(variable) or "dce", variable)  # or a program that is missing
    if policy := os.environ.get("EPWEAVE_PARTITION"):
        check_policy(policy, "EPWEAVE_PARTITION")
    for variable in ("EPWEAVE_KEEP", "EPWEAVE_PRECOMPILE", "EPWEAVE_TRACE"):
        _make_folder(variable)
