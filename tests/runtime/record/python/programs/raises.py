"""A step that raises under one condition, and a program that cannot be built with --broken."""

import sys
from typing import Any, Callable

import torch
import torch.distributed as dist


def make() -> Callable[[str], None]:
    if "--broken" in sys.argv:
        raise ValueError("no such data set")

    def step(batch: str) -> None:
        dist.all_reduce(torch.ones(2))
        if batch == "bad":
            raise ValueError("an empty batch")

    return step


def lockstep() -> dict[str, Any]:
    return {"build": make, "conditions": {"good": "good", "bad": "bad"}, "world_size": 2}
