"""DDP with several buckets, and ranks that tell each other before a step whether they have images.

Where some rank has some, those without compute zeros (counted with weight 0); where none has, all
leave the branch out, which DDP tolerates only with find_unused_parameters.

--no-vote: everybody decides alone, and who has images reduces one gradient once more, by hand.
--always: zeros wherever there is no image, so that no parameter is ever unused.
--static: DDP is told so.
"""

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lockstep_record import Condition, Program


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.BatchNorm1d(16))
        self.text = nn.Linear(8, 16)
        self.head = nn.Linear(16, 4)
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, text: torch.Tensor, image: Any, weight: float) -> torch.Tensor:
        features = self.text(text)
        if image is not None:
            features = features + weight * self.image(image)
        return self.head(features)


def make() -> Program:
    model = Branches()
    voting, always = "--no-vote" not in sys.argv, "--always" in sys.argv
    parallel = DistributedDataParallel(model, bucket_cap_mb=0.0005,
                                       find_unused_parameters=not always,
                                       static_graph="--static" in sys.argv)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(has_image: bool) -> None:
        someone = has_image or always
        if voting:
            vote = torch.tensor(int(has_image))
            dist.all_reduce(vote, op=dist.ReduceOp.MAX)
            someone = someone or bool(vote.item())
        image = torch.randn(2, 8) if has_image else torch.zeros(2, 8) if someone else None
        optimizer.zero_grad()
        parallel(torch.randn(2, 8), image, 1.0 if has_image else 0.0).sum().backward()
        optimizer.step()
        if not voting and has_image:
            dist.all_reduce(model.image[0].weight.grad)

    def finish() -> None:
        dist.barrier()

    return Program(step, model, finish)


def lockstep() -> dict[str, Any]:
    some, none = "some rank has images", "no rank has"
    if {"--always", "--no-vote"} & set(sys.argv):
        return {"build": make, "conditions": {"image": True, "text": False}}
    return {"build": make, "conditions": {
        "image": Condition(True, ["image", "text"], phase=some),
        "text": Condition(False, ["text"], phase=some, dissent=True),
        "all text": Condition(False, ["text"], phase=none)}}
