"""Trains two_branches.py with FSDP2 (fully_shard); some batches have no images.

A rank without images never comes to the image branch, so it does not gather its parameters, and the
others wait for it. With --dummy it feeds the branch zeros, which count with weight 0.

    torchrun --nproc-per-node 2 fsdp2_image_text.py                   # hangs or mispairs
    torchrun --nproc-per-node 2 fsdp2_image_text.py --dummy

    python ../lockstep_record.py fsdp2_image_text.py --world-size 4 --output derived
    lockstep verify derived                                 # says so without a run
"""

import argparse
import random
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

from two_branches import CONDITIONS, HAS, Batch, TwoBranches, make_batch


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dummy", action="store_true")
    return parser.parse_args()


def make_trainer() -> Callable[[Batch], None]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    dummy = options().dummy
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = TwoBranches()
    for part in (model.image, model.text, model):
        fully_shard(part, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        image, weight = batch.get("image"), 1.0
        if image is None and dummy:
            image, weight = torch.zeros(len(batch["text"]), 3, 16, 16), 0.0
        loss = cross_entropy(model(batch["text"], image, weight), batch["label"])
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
