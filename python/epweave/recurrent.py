"""Recurrent layers as products and functions of elements, which the op table has."""
from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

_LAYERS = ("gru", "lstm", "rnn_relu", "rnn_tanh")


def _taken_apart(layer: Callable) -> Callable:
    @functools.wraps(layer)
    def call(*args, **kwargs):
        import torch
        from torch._dispatch.python import enable_python_dispatcher
        has_onednn = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(False)
        try:
            with enable_python_dispatcher():  # torch's own layers in Python
                return layer(*args, **kwargs)
        finally:
            torch._C._set_mkldnn_enabled(has_onednn)
    return call


@contextlib.contextmanager
def recurrent_layers_taken_apart() -> Iterator[None]:
    """In here layers that torch.nn calls are such calls. Else each is one kernel of oneDNN's or cuDNN's where that serves the
    device; oneDNN's backward takes a workspace that a traced call does not get."""
    import torch
    own = {name: getattr(torch._VF, name) for name in _LAYERS}
    for name, layer in own.items():
        setattr(torch._VF, name, _taken_apart(layer))
    try:
        yield
    finally:
        for name in own:
            delattr(torch._VF, name)
