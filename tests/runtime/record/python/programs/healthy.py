"""Healthy jobs of several kinds, watched by lockstep_watch: none may be accused.

usage: healthy.py KIND DTYPE SEED STEPS [timed]     a process for each rank, as torchrun starts it

KIND is a key of KINDS; DTYPE float32 or bfloat16. With `timed`, a model that is watched and one that
is not make their steps in turn, and rank 0 prints the seconds of each step: a list without watch(),
and one with it.
"""

import contextlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from lockstep_watch import watch

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
KIND, DTYPE = sys.argv[1], getattr(torch, sys.argv[2])
SEED, STEPS, TIMED = int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:] == ["timed"]
WIDTH = 512 if TIMED else 32
BATCH = 64 if TIMED else 4


def net():
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.LayerNorm(2 * WIDTH), nn.GELU(),
                         nn.Dropout(0.1), nn.Linear(2 * WIDTH, WIDTH)).to(DTYPE)


def loader(accumulate):
    torch.manual_seed(SEED)
    samples = TensorDataset(torch.randn(BATCH * WORLD * STEPS * accumulate, WIDTH).to(DTYPE))
    return DataLoader(samples, BATCH, sampler=DistributedSampler(samples, seed=SEED))


def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= WORLD


def ddp(model):
    return DDP(model)


def compressed(model):
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
    model = DDP(model)
    model.register_comm_hook(None, bf16_compress_hook)
    return model


class Adapted(nn.Module):
    """LoRA: the gradients of `down` are zeros in the first step, because `up` is."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(4, inner.in_features, dtype=DTYPE))
        self.up = nn.Parameter(torch.zeros(inner.out_features, 4, dtype=DTYPE))

    def forward(self, x):
        return self.inner(x) + x @ self.down.T @ self.up.T


def adapted(model):
    model[0], model[4] = Adapted(model[0]), Adapted(model[4])
    return DDP(model)


def by_hand(model):
    return model


def fsdp2(model):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(model, mp_policy=policy)
    return model


def tensor_parallel(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, RowwiseParallel, parallelize_module)
    mesh = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("tp",))
    model = nn.Sequential(model[0], model[2], model[4], nn.LayerNorm(WIDTH, dtype=DTYPE))
    return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


# How the model is wrapped; what else is done; what watch() is told.
KINDS = {
    "ddp": (ddp, (), {}),
    "ddp-mean": (ddp, (), {"mean": True}),
    "ddp-adamw-clip": (ddp, ("adamw", "clip"), {"mean": True}),
    "ddp-accumulate": (ddp, ("accumulate",), {"mean": True}),
    "ddp-compressed": (compressed, ("adamw",), {"mean": True}),
    "ddp-adapted": (adapted, ("adamw",), {}),
    "ddp-scaler-clip": (ddp, ("scaler", "clip"), {"mean": True}),
    "by-hand": (by_hand, (), {"replicas": "world", "mean": True}),
    "by-hand-clip": (by_hand, ("adamw", "clip"), {"replicas": "world", "mean": True}),
    "fsdp2": (fsdp2, ("adamw", "clip"), {}),
    "tensor-parallel": (tensor_parallel, ("one-batch", "adamw"), {}),
}


def train(watched):
    """Yields after each step of the optimizer."""
    wrap, doing, said = KINDS[KIND]
    model = wrap(net())
    make = torch.optim.AdamW if "adamw" in doing else torch.optim.SGD
    optimizer = make(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", enabled="scaler" in doing, init_scale=1024.0)
    parts = 2 if "accumulate" in doing else 1
    batches = loader(parts)
    if watched:
        if "replicas" in said:
            said = {**said, "replicas": dist.group.WORLD}
        watch(model, optimizer, None if "one-batch" in doing else batches, **said)
    torch.manual_seed(1000 * SEED + (0 if "one-batch" in doing else RANK))
    micro = 0
    for (batch,) in batches:
        if "one-batch" in doing:
            batch = torch.randn(BATCH, WIDTH).to(DTYPE)
        micro += 1
        waits = micro % parts != 0
        with model.no_sync() if waits else contextlib.nullcontext():
            scaler.scale(model(batch).float().square().mean() / parts).backward()
        if waits:
            continue
        if wrap is by_hand:
            average_gradients(model)
        if "clip" in doing:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        yield


def seconds_of_steps():
    """The times of steps without and with watch(), taken in turn: what else runs slows both."""
    jobs = [train(False), train(True)]
    times = [[], []]
    for _ in range(STEPS):
        for job, taken in zip(jobs, times):
            dist.barrier()
            began = time.monotonic()
            next(job)
            taken.append(time.monotonic() - began)
    return times


dist.init_process_group("gloo")
if TIMED:
    for _ in train(False):  # warms up
        pass
    times = seconds_of_steps()
    if RANK == 0:
        print("seconds", json.dumps(times))
else:
    for _ in train(True):
        pass
dist.destroy_process_group()
