"""A pipeline whose stages tell each other the shape of the next message. For record_test.py;
--raises: a stage cannot compute with the zeros that stand for a shape."""

import sys

import torch
import torch.distributed as dist


def make_trainer():
    rank, size = dist.get_rank(), dist.get_world_size()
    layer = torch.nn.Linear(8, 8)

    def step(length):
        x = torch.ones(length, 8)
        if rank > 0:
            shape = torch.empty(2, dtype=torch.int64)
            dist.recv(shape, rank - 1)
            x = torch.empty(*shape.tolist())
            dist.recv(x, rank - 1)
        y = layer(x) if x.numel() or "--raises" in sys.argv else x
        if rank < size - 1:
            dist.send(torch.tensor(y.shape), rank + 1)
            dist.send(y.detach(), rank + 1)
        dist.all_reduce(layer.weight.data)

    return step


def lockstep():
    return {"build": make_trainer, "conditions": {"short": 4, "long": 9}}
