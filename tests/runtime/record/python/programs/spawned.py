"""Two ranks that torch.multiprocessing.spawn starts; the second one raises."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def train(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for step in range(3):
        if rank == 1 and step == 2:
            raise IndexError("sample 17 out of range")
        dist.all_reduce(torch.ones(4))


if __name__ == "__main__":
    mp.spawn(train, args=(sys.argv[1],), nprocs=2)
