"""Trains two_branches.py with DistributedDataParallel; some batches have no images.

    torchrun --nproc-per-node 2 ddp_image_text.py                     # hangs or raises
    torchrun --nproc-per-node 2 ddp_image_text.py --find-unused

    python ../lockstep_record.py ddp_image_text.py --world-size 4 --output derived
    lockstep verify derived                                 # says so without a run
"""

import argparse
import random
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from two_branches import CONDITIONS, HAS, Batch, TwoBranches, make_batch


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--find-unused", action="store_true")
    return parser.parse_args()


def make_trainer() -> Callable[[Batch], None]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    model = DistributedDataParallel(TwoBranches(), find_unused_parameters=options().find_unused)
    optimizer = torch.optim.AdamW(model.parameters())

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        loss = cross_entropy(model(batch["text"], batch.get("image")), batch["label"])
        loss.backward()
        optimizer.step()

    return step


def lockstep() -> dict[str, Any]:
    return {"build": make_trainer, "conditions": CONDITIONS, "has": HAS}


def main() -> None:
    step = make_trainer()
    for _ in range(20):
        step(make_batch(with_image=random.random() < 0.8))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
