"""torchtitan's model as its trainer builds it, without its values."""
from __future__ import annotations


def parallelize(config, dims):
    """The parallelised model on torch's meta device."""
    import torch
    from torchtitan.config import TORCH_DTYPE_MAP
    from torchtitan.tools import utils

    spec = config.model_spec
    spec.model.update_from_config(config=config)
    with torch.device("meta"), utils.set_default_dtype(TORCH_DTYPE_MAP[config.training.dtype]):
        model = spec.model.build()
    return spec.parallelize_fn(
        model, parallel_dims=dims, training=config.training, parallelism=config.parallelism,
        compile_config=config.compile, ac_config=config.activation_checkpoint, dump_folder=".")


def build_loss(config, model):
    """The loss function, which takes the model's last layer to itself where it works in chunks."""
    from torchtitan.components.loss import ChunkedLossWrapper

    loss = config.loss.build(compile_config=config.compile)
    if isinstance(loss, ChunkedLossWrapper):
        loss.set_lm_head(model.lm_head)
        model._skip_lm_head = True
    return loss
