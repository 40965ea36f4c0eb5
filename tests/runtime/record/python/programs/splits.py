"""Replicas that exchange rows, as many as a rank's batch has: they never tell each other how many.

usage: under lockstep_record.py; --told: they do
"""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def make_trainer():
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    parser = argparse.ArgumentParser()
    parser.add_argument("--told", action="store_true")
    told = parser.parse_args().told
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch):
        optimizer.zero_grad()
        rows = [len(batch)] * dist.get_world_size()
        theirs = torch.tensor(rows)
        if told:
            dist.all_to_all_single(theirs, torch.tensor(rows))
        splits = theirs.tolist()
        received = torch.empty(sum(splits), 4)
        dist.all_to_all_single(received, batch.repeat(len(rows), 1), splits, rows)
        model(received).sum().backward()
        optimizer.step()

    return step


def lockstep():
    return {"build": make_trainer, "conditions": {"one": torch.ones(1, 4), "two": torch.ones(2, 4)}}
