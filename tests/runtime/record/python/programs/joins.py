"""Ranks with different numbers of batches under Join. For record_test.py."""

import torch
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel


def make_trainer():
    model = DistributedDataParallel(torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batches):
        with Join([model]):
            for _ in range(batches):
                model(torch.ones(4, 8)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()

    return step


def lockstep():
    return {"build": make_trainer, "conditions": {"three": 3, "five": 5}}
