#!/usr/bin/env python3
"""A small mixture of experts in plain PyTorch, as docs/own_model.md traces it.

    own_moe.py OUT.epw              trace a training step of rank 0 of two, without other processes
"""
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single, all_to_all_single_autograd


def exchange(tokens, chosen, weights, experts, count, group):
    """Sends each token to its experts' ranks, runs `experts` there, and adds up what comes back.

    tokens [t, width]; chosen, weights [t, k]; `experts(rows, counts)` runs the experts of this rank, whose rows follow
    one another; `count` experts in all.
    """
    size, top = dist.get_world_size(group), chosen.shape[1]
    order = torch.argsort(chosen.reshape(-1), stable=True)
    marks = torch.zeros(tokens.shape[0], count, dtype=torch.bool, device=tokens.device)
    counts = marks.scatter(1, chosen, True).sum(0)
    with torch.no_grad():
        theirs = torch.ops._c10d_functional.wait_tensor(all_to_all_single(counts, None, None, group)).view(size, -1)
        sent, received = counts.view(size, -1).sum(1).tolist(), theirs.sum(1).tolist()
    routed = all_to_all_single_autograd(tokens[order // top], received, sent, group)
    owner = torch.arange(theirs.shape[1], device=tokens.device).repeat(size)
    owner = torch.repeat_interleave(owner, theirs.reshape(-1), output_size=routed.shape[0])
    by_expert = torch.argsort(owner, stable=True)
    done = experts(routed[by_expert], theirs.sum(0))
    back = torch.empty_like(done)
    back[by_expert] = done
    scaled = all_to_all_single_autograd(back, sent, received, group) * weights.reshape(-1)[order].unsqueeze(-1)
    rows = (order // top).unsqueeze(-1).expand_as(scaled)
    return torch.zeros_like(tokens).scatter_add(0, rows, scaled)


class Experts(nn.Module):
    """The experts of one rank."""

    def __init__(self, count, width, hidden):
        super().__init__()
        self.up = nn.Parameter(torch.randn(count, width, hidden) * 0.1)
        self.down = nn.Parameter(torch.randn(count, hidden, width) * 0.1)

    def forward(self, rows, counts):
        ends = torch.cumsum(counts, 0, dtype=torch.int32)
        hidden = F.silu(torch._grouped_mm(rows.bfloat16(), self.up.bfloat16(), offs=ends))
        return torch._grouped_mm(hidden, self.down.bfloat16(), offs=ends).type_as(rows)


class MoE(nn.Module):
    def __init__(self, width, hidden, experts, top, group):
        super().__init__()
        self.group, self.top, self.count = group, top, experts
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = Experts(experts // dist.get_world_size(group), width, hidden)

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        weights, chosen = torch.topk(torch.softmax(self.router(tokens), -1), self.top)
        return exchange(tokens, chosen, weights, self.experts, self.count, self.group).view_as(x)


class Block(nn.Module):
    def __init__(self, *facts):
        super().__init__()
        self.norm = nn.LayerNorm(facts[0])
        self.moe = MoE(*facts)

    def forward(self, x):
        return x + self.moe(self.norm(x))


class Model(nn.Module):
    def __init__(self, group, vocabulary=64, width=16, hidden=32, experts=4, top=2, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, hidden, experts, top, group) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def step(model, tokens, labels):
    return F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())


def main(path):
    import epweave
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    tokens = torch.randint(64, (4, 8))
    traced = epweave.trace(step, Model(dist.group.WORLD), {"tokens": tokens, "labels": tokens},
                           groups={"ep": dist.group.WORLD})
    traced.export(path)
    print(f"{len(traced.graph.graph.nodes)} nodes in {path}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, end="")
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)
    main(sys.argv[1])
