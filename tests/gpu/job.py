"""A small training job of Python's torch that knows nothing of Lockstep; rank 1 does what CASE says.

usage: job.py {ddp,fsdp2} CASE {cuda,cpu}

Each step: a forward and backward pass of an image and a text branch, gradients synchronised by DDP or
FSDP2, and a metric that all ranks sum. In step 3 rank 1
  clean      does as the others
  extra      sums something that nobody else sums
  missing    leaves the metric out
  stall      stops, and goes on for ever without a call
  exception  raises
  killed     is gone by SIGKILL

environment: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, as torchrun sets them
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 6
FAULTY_STEP = 3
WIDTH = 64


class TwoBranches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Sequential(nn.Linear(48, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.text = nn.Sequential(nn.Linear(24, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, image: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        return (self.image(image) * self.text(text)).sum(1)


def synchronised(model: nn.Module, strategy: str, device: torch.device) -> nn.Module:
    if strategy == "ddp":
        return DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for branch in (model.image, model.text):
        fully_shard(branch, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def misbehave(case: str, device: torch.device) -> None:
    if case == "extra":
        dist.all_reduce(torch.ones(17, device=device))
    elif case == "stall":
        time.sleep(3600)
    elif case == "exception":
        raise ValueError("a sample without an image")
    elif case == "killed":
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    strategy, case, kind = sys.argv[1:]
    device = torch.device(kind, int(os.environ["LOCAL_RANK"])) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    model = synchronised(TwoBranches().to(device), strategy, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        faulty = rank == 1 and step == FAULTY_STEP and case != "clean"
        image, text = (torch.randn(8, n, generator=generator).to(device) for n in (48, 24))
        if faulty:
            misbehave(case, device)
        loss = model(image, text).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        metric = torch.stack([loss.detach(), torch.ones((), device=device)])
        if not (faulty and case == "missing"):
            dist.all_reduce(metric)
        print(f"step {step} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
