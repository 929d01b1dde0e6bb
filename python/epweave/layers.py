"""Which layers a model of torchtitan keeps where it is asked for so many."""
from __future__ import annotations

import copy


def resize_layers(layers: list, count: int) -> list:
    """`count` layer configurations: the dense ones first, then the MoE ones in turn."""
    dense = [layer for layer in layers if getattr(layer, "moe", None) is None]
    moe = [layer for layer in layers if getattr(layer, "moe", None) is not None]
    kept = dense[:count] if moe else []
    pool = moe or dense
    return kept + [copy.deepcopy(pool[i % len(pool)]) for i in range(count - len(kept))]
