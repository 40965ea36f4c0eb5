"""Tokens that go to the ranks of their experts, by counts that ranks tell each other first. For
record_test.py; --skip: one kind of batch leaves the way back out."""

import sys

import torch
import torch.distributed as dist


def make_trainer():
    size = dist.get_world_size()

    def step(batch):
        tokens = torch.arange(12.0).view(12, 1)
        owner = torch.randint(0, size, (12,), generator=torch.Generator().manual_seed(
            100 * batch + dist.get_rank()))
        counts = torch.bincount(owner, minlength=size)
        coming = torch.empty_like(counts)
        dist.all_to_all_single(coming, counts)
        received = torch.empty(int(coming.sum()), 1)
        dist.all_to_all_single(received, tokens, coming.tolist(), counts.tolist())
        if "--skip" in sys.argv and batch == 1:
            return
        dist.all_to_all_single(torch.empty(12, 1), received, counts.tolist(), coming.tolist())

    return step


def lockstep():
    return {"build": make_trainer, "conditions": {"a": 0, "b": 1}}
