"""Jobs that know nothing of lockstep_watch, whose values are still recorded.

usage: unwatched.py JOB [wrong]     a process for each rank, started as torchrun does

Each function says what is wrong, and where it first shows.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
WRONG = "wrong" in sys.argv


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4))


def loader():
    """A validation on all samples by each rank, which is right; the training's sampler is missing: step 1."""
    samples = TensorDataset(torch.randn(48, 8, generator=torch.Generator().manual_seed(1)))
    validation = DataLoader(TensorDataset(torch.randn(16, 8)), batch_size=8)
    batches = DataLoader(samples, 4, sampler=None if WRONG else DistributedSampler(samples))
    net = DDP(model())
    optimizer = torch.optim.AdamW(net.parameters())
    for epoch in range(2):
        if not WRONG:
            batches.sampler.set_epoch(epoch)
        net.eval()
        with torch.no_grad():
            for (batch,) in validation:
                net.module(batch)
        net.train()
        for (batch,) in batches:
            net(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


def clip():
    """Data parallelism by hand. Gradients are clipped before they are reduced: clip.norm in step 1."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(4):
        net(torch.randn(8, 8, generator=torch.Generator().manual_seed(10 * step + RANK))).square().mean().backward()
        if WRONG:
            nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= WORLD
        if not WRONG:
            nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        optimizer.step()
        optimizer.zero_grad()


def resumed():
    """A second optimizer takes over after step 3, and rank 1 does not load the moments: step 4."""
    net = DDP(model())

    def train(optimizer):
        for step in range(3):
            net(torch.randn(8, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return optimizer

    before = train(torch.optim.AdamW(net.parameters()))
    optimizer = torch.optim.AdamW(net.parameters())
    if not WRONG or RANK != 1:
        optimizer.load_state_dict(before.state_dict())
    del before
    train(optimizer)


def zero():
    """ZeRO's optimizer, which uses another one: rank 1's weight decay differs in step 1."""
    from torch.distributed.optim import ZeroRedundancyOptimizer
    net = DDP(model())
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW,
                                        weight_decay=0.5 if WRONG and RANK == 1 else 0.0)
    for step in range(4):
        net(torch.randn(8, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def early():
    """The optimizer is made before the model is sharded, and keeps the old parameters: no-update from step 1 on."""
    from torch.distributed.fsdp import fully_shard
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    fully_shard(net)
    if not WRONG:
        optimizer = torch.optim.AdamW(net.parameters())
    for step in range(4):
        net(torch.randn(8, 8)).square().mean().backward()
        optimizer.step()
        net.zero_grad()


def root():
    """FSDP2, which has the root's parameters whole at the first backward; rank 1's optimizer lacks one: step 1."""
    from torch.distributed.fsdp import fully_shard
    net = model()
    fully_shard(net[0])
    fully_shard(net)
    optimizer = torch.optim.SGD([p for name, p in net.named_parameters()
                                 if not (WRONG and RANK == 1 and name == "3.weight")], lr=0.1)
    for step in range(4):
        net(torch.randn(8, 8)).square().mean().backward()
        optimizer.step()
        net.zero_grad()


def outliers():
    """Rank 1 leaves out its first step: it is a step behind from step 1 on. Two models, one after the other."""
    for first in (False, True):
        net = DDP(model())
        optimizer = torch.optim.AdamW(net.parameters())
        for step in range(3):
            net(torch.randn(8, 8)).square().mean().backward()
            if not WRONG or not first or RANK == 0 or step > 0:
                optimizer.step()
            optimizer.zero_grad()


def experts():
    """DDP leaves the experts to their ranks; rank 1's router begins with another value after DDP made all equal: step 0."""
    net = model()
    torch.manual_seed(1 + RANK)
    net.add_module("expert", nn.Linear(4, 4))
    DDP._set_params_and_buffers_to_ignore_for_model(net, ["expert.weight", "expert.bias"])
    net = DDP(net)
    if WRONG and RANK == 1:
        net.module[3].bias.data += 1
    optimizer = torch.optim.AdamW(net.parameters())
    for step in range(4):
        net(torch.randn(8, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def columns():
    """Tensor parallelism by hand, of one batch; right: ranks whose layers are whole read their own. Wrong: step 1."""
    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x = x.clone()
            dist.all_reduce(x)
            return x

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    torch.manual_seed(0 if WRONG else RANK)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(net.parameters())
    samples = TensorDataset(torch.randn(48, 8, generator=torch.Generator().manual_seed(1)))
    for (batch,) in DataLoader(samples, 4):
        Sum.apply(net(batch)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


dist.init_process_group("gloo")
globals()[sys.argv[1]]()
dist.destroy_process_group()
