"""Imports by name, opens its process group itself, on a backend of its own, and calls derive()."""

import sys
from typing import Any, Callable

import torch
from torch.distributed import all_reduce, init_process_group, new_group

from lockstep_record import Condition, derive


def make() -> Callable[[Any], None]:
    init_process_group("gloo", init_method="env://")
    pair = new_group([0, 1], backend="gloo")

    def step(size: int) -> None:
        all_reduce(torch.ones(3), group=pair)
        all_reduce(torch.ones(4))

    return step


if __name__ == "__main__":
    derive(make, {"one": 1, "two": Condition(lambda: 2)}, world_size=2, output=sys.argv[1])
