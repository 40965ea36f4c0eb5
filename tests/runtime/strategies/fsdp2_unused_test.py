"""What FSDP2 does with parameters that got no gradient, as docs/strategies.md compares it with ours.

usage: with_torch fsdp2_unused_test.py (unittest's arguments)

Two ranks over Gloo. Step 0 runs everything on both; the case decides step 1. Needs torch 2.13.
"""

import datetime
import multiprocessing
import multiprocessing.connection
import os
import socket
import sys
import unittest
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard

PATIENCE_S = 30  # how long a rank waits for the other: enough on a busy machine


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.e = nn.ModuleList([nn.Linear(8, 8, bias=False) for _ in range(2)])

    def forward(self, x: torch.Tensor, which: "list[int]") -> torch.Tensor:
        return sum(self.e[i](x) for i in which)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.vision = nn.Linear(8, 8, bias=False)
        self.text = nn.Linear(8, 8, bias=False)
        self.experts = Experts()
        self.head = nn.Linear(8, 1, bias=False)

    def forward(self, x: torch.Tensor, case: str, rank: int) -> torch.Tensor:
        hidden = self.text(x) + self.experts(x, [rank] if case == "experts" else [0, 1])
        text_only = case == "no rank" or (rank == 1 and case in ("not run", "not used", "empty"))
        if not text_only:
            hidden = hidden + self.vision(x)
        elif case == "empty":
            hidden = hidden + 0 * self.vision(x[:0]).sum()
        elif case == "not used":
            self.vision(x)
        return self.head(hidden).sum()


def rank_of(rank: int, port: int, case: str, zeros: bool,
            out: "multiprocessing.connection.Connection") -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2,
                            timeout=datetime.timedelta(seconds=PATIENCE_S))
    torch.manual_seed(0)
    model = Model()
    for unit in (model.vision, model.text, model.experts, model):
        fully_shard(unit)
    if zeros:
        model.set_reduce_scatter_unused_params(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    try:
        for step in range(2):
            optimizer.zero_grad()
            model(torch.ones(4, 8) * (1 + rank), case if step == 1 else "", rank).backward()
            before = model.vision.weight.to_local().clone()
            gradients = {name: None if p.grad is None else p.grad.to_local().norm().item()
                         for name, p in model.named_parameters()}
            optimizer.step()
        moved = not torch.equal(before, model.vision.weight.to_local())
        out.send((gradients, moved))
    except RuntimeError as error:
        out.send((str(error), None))
    os._exit(0)  # the other rank may still wait


def run(case: str, zeros: bool) -> "dict[int, tuple[object, object]]":
    """By rank: the gradients of step 1, and whether the vision weights moved in it; or the error."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    fork = multiprocessing.get_context("fork")
    ranks, ends = [], []
    for rank in range(2):
        end, own = fork.Pipe(duplex=False)
        ranks.append(fork.Process(target=rank_of, args=(rank, port, case, zeros, own)))
        ranks[-1].start()
        own.close()
        ends.append(end)
    found = {}
    for rank, end in enumerate(ends):
        try:
            found[rank] = end.recv() if end.poll(10 * PATIENCE_S) else ("hangs", None)
        except EOFError:  # Gloo ends a process whose sizes do not fit
            found[rank] = ("dies", None)
    for process in ranks:
        process.kill()
        process.join()
    return found


@unittest.skipUnless(hasattr(FSDPModule, "set_reduce_scatter_unused_params"), "torch before 2.13")
class UnusedParameters(unittest.TestCase):
    def stops(self, found: "dict[int, tuple[object, object]]") -> None:
        """Rank 0 cannot go on without the other: it waits, or what comes does not fit."""
        self.assertIsInstance(found[0][0], str)

    def test_a_unit_that_a_rank_does_not_run_is_not_saved(self) -> None:
        for zeros in (False, True):
            self.stops(run("not run", zeros))

    def test_a_unit_that_ran_without_a_gradient_is_saved_by_zeros_alone(self) -> None:
        self.stops(run("not used", zeros=False))
        for gradients, moved in run("not used", zeros=True).values():
            self.assertGreater(gradients["vision.weight"], 0)
            self.assertTrue(moved)

    def test_an_empty_tensor_needs_no_zeros(self) -> None:
        for gradients, _ in run("empty", zeros=False).values():
            self.assertGreater(gradients["vision.weight"], 0)

    def test_different_gradients_of_equal_size_are_added(self) -> None:
        mixed, right = run("experts", zeros=False), run("experts", zeros=True)
        for rank in (0, 1):
            # Each rank's shard of "its" expert holds both experts' gradients, the other none.
            self.assertIsNone(mixed[rank][0][f"experts.e.{1 - rank}.weight"])
            both = sum(right[rank][0][f"experts.e.{i}.weight"] for i in (0, 1))
            self.assertAlmostEqual(mixed[rank][0][f"experts.e.{rank}.weight"], both, places=3)

    def test_zeros_decay_what_no_rank_ran(self) -> None:
        for zeros in (False, True):
            for gradients, moved in run("no rank", zeros).values():
                self.assertEqual(gradients["vision.weight"], 0.0 if zeros else None)
                self.assertEqual(moved, zeros)


if __name__ == "__main__":
    sys.exit(unittest.main())
