#!/usr/bin/env python3
"""One step of own_moe.Model on gloo ranks, as traced and as rewritten: see docs/own_model.md.

    torchrun --nproc-per-node 2 train_own_moe.py
"""
import own_moe
import torch
import torch.distributed as dist

import epweave

dist.init_process_group("gloo")
torch.manual_seed(0)
group = dist.group.WORLD
model = own_moe.Model(group)
tokens = torch.randint(64, (4, 8))
inputs = {"tokens": tokens, "labels": tokens}

step = epweave.trace(own_moe.step, model, inputs, groups={"ep": group})
result = epweave.rewrite(step, preset="ep-overlap", roots="blocks.*.moe", symbolize="yes")
assert epweave.verify(step, result)

module = result.graph
epweave.create_process_groups(module)
fast = step.with_graph(module)

loss, gradients = step(model, inputs)
new_loss, new_gradients = fast(model, inputs)
if dist.get_rank() == 0:
    worst = max(((gradients[n] - new_gradients[n]).norm() / gradients[n].norm()).item() for n in gradients)
    print(f"loss {loss.item():.6f} and {new_loss.item():.6f}; gradients within {worst:.1e} of each other")
dist.destroy_process_group()
