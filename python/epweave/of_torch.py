"""Operators that the op table lacks and torch takes apart itself."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Of each all overloads but those that write into a given tensor.
_NAMES = """
_batch_norm_no_update _batch_norm_with_update _native_batch_norm_legit _native_batch_norm_legit_no_training _prelu_kernel_backward batch_norm_backward cudnn_batch_norm
cudnn_batch_norm_backward native_batch_norm native_batch_norm_backward
col2im im2col unfold unfold_backward
max_unpool2d max_unpool3d nll_loss2d_backward nll_loss2d_forward soft_margin_loss soft_margin_loss_backward
celu channel_shuffle diagonal_backward erfc hardshrink softshrink linalg_cross logit logit_backward relu6 selu threshold xlogy
_euclidean_dist block_diag count_nonzero deg2rad diag_embed dist index_fill logaddexp2 norm rad2deg renorm rot90 sinc special_entr
special_xlog1py tril_indices triu_indices vdot
addmv addr affine_grid_generator diagonal_copy hann_window heaviside isin isneginf isposinf ldexp logspace take trace
""".split()


def torch_decompositions() -> dict[Any, Callable]:
    """Batch norm, unfolding, losses of images, norms of vectors, distances and some functions of elements."""
    import torch
    from torch._decomp import decomposition_table
    found = {}
    for name in _NAMES:
        packet = getattr(torch.ops.aten, name)
        for kind in packet.overloads():
            op = getattr(packet, kind)
            if op in decomposition_table and not any(a.is_out for a in op._schema.arguments):
                found[op] = decomposition_table[op]
    return found
