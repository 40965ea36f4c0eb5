"""A right job under DDP whose tensors are of unusual kinds, watched by lockstep_watch.

A sparse gradient, complex parameters, a lazy layer, a gradient of a class of the program's own, an
empty parameter, an output that only rank 1 gives.
"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

from lockstep_watch import watch

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Scaled(torch.Tensor):
    """Such as a float8 tensor with its scale, of which nobody else knows the layout."""


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100, 8, sparse=True)
        self.phase = nn.Parameter(torch.randn(8, 8, dtype=torch.complex64))
        self.empty = nn.Parameter(torch.empty(0))
        self.scale = nn.Parameter(torch.ones(8))
        self.head = nn.Linear(8, 4)

    def forward(self, ids):
        hidden = (self.table(ids).to(torch.complex64) @ self.phase).abs()
        return {"logits": self.head(hidden * self.scale), **({"hidden": hidden} if RANK == 1 else {})}


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(Mixed(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
watch(model, optimizer, mean=True)
torch.manual_seed(0)
lazy = nn.LazyLinear(4)
of_lazy = torch.optim.Adam(lazy.parameters())
watch(lazy, of_lazy, replicas=dist.group.WORLD)
for step in range(4):
    ids = torch.randint(0, 100, (8,), generator=torch.Generator().manual_seed(10 * step + RANK))
    optimizer.zero_grad()
    of_lazy.zero_grad()
    out = model(ids)["logits"]
    (out.square().mean() + lazy(out.detach()).square().mean()).backward()
    for p in lazy.parameters():
        dist.all_reduce(p.grad)
        p.grad /= WORLD
    scale = model.module.scale
    scale.grad = scale.grad.as_subclass(Scaled)
    optimizer.step()
    of_lazy.step()
dist.destroy_process_group()
