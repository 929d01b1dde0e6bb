"""Recurrent layers as products and functions of elements, which the op table has."""
from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

_LAYERS = ("gru", "lstm", "rnn_relu", "rnn_tanh")


def _in_python(layer: Callable, *args):
    import torch
    from torch._dispatch.python import enable_python_dispatcher
    has_onednn = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        with enable_python_dispatcher():  # torch's own layers in Python
            return layer(*args)
    finally:
        torch._C._set_mkldnn_enabled(has_onednn)


def _with_dropout(layer: Callable, x, states, weights, has_biases, count, dropout, train, bidirectional, batch_first):
    """Layer by layer, as torch's in Python leave out what is dropped between them."""
    import torch
    directions, each = 2 if bidirectional else 1, len(weights) // count
    ends = []
    x = x.transpose(0, 1) if batch_first else x
    for i in range(count):
        if i > 0:
            x = torch.nn.functional.dropout(x, dropout)
        own = slice(i * directions, (i + 1) * directions)
        begin = [state[own] for state in states] if isinstance(states, (list, tuple)) else states[own]
        x, *end = _in_python(layer, x, begin, weights[i * each:(i + 1) * each], has_biases, 1, 0.0, train, bidirectional, False)
        ends.append(end)
    return x.transpose(0, 1) if batch_first else x, *map(torch.cat, zip(*ends))


def _taken_apart(layer: Callable) -> Callable:
    @functools.wraps(layer)
    def call(*args):
        if isinstance(args[3], (list, tuple)):  # of packed sequences
            return _in_python(layer, *args)
        count, dropout, train = args[4:7]
        drops = train and dropout > 0 and count > 1
        return _with_dropout(layer, *args) if drops else _in_python(layer, *args)
    return call


class PackedSequences(RuntimeError):
    """How many rows a packed step has is read from what the lengths hold."""


def _refuse_packing(*args):
    raise PackedSequences


@contextlib.contextmanager
def recurrent_layers_taken_apart() -> Iterator[None]:
    """In here layers that torch.nn calls are such calls. Else each is one kernel of oneDNN's or cuDNN's where that serves the
    device; oneDNN's backward takes a workspace that a traced call does not get."""
    import torch
    own = {name: getattr(torch._VF, name) for name in (*_LAYERS, "_pack_padded_sequence")}
    for name in _LAYERS:
        setattr(torch._VF, name, _taken_apart(own[name]))
    torch._VF._pack_padded_sequence = _refuse_packing
    try:
        yield
    finally:
        for name in own:
            delattr(torch._VF, name)
