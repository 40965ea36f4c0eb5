"""FSDP2, and torch.distributed.checkpoint saves in every step. For record_test.py."""

import tempfile

import torch
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard


def make_trainer():
    model = torch.nn.Linear(8, 4)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())

    def step(batch):
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        of_model, of_optimizer = get_state_dict(model, optimizer)
        with tempfile.TemporaryDirectory() as folder:
            checkpoint.save({"model": of_model, "optimizer": of_optimizer}, checkpoint_id=folder)

    return step


def lockstep():
    return {"build": make_trainer, "conditions": {"any": torch.ones(2, 8)}}
