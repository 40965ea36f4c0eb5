"""Makes Flight Recorder dumps of jobs over Gloo, right and wrong, as PyTorch writes them.

usage: make_dumps.py CASE FOLDER [pickle | json]     a process for each rank, as torchrun starts it

CASE is a function below. Each rank dumps what it has recorded while it runs, hangs or computes,
after DUMP_AFTER seconds, and ends: rank_<r> is PyTorch's pickle, and rank_<r>.json its JSON. Needs
TORCH_FR_BUFFER_SIZE.

    for rank in 0 1 2; do
      RANK=$rank WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 TORCH_FR_BUFFER_SIZE=200 \\
        python make_dumps.py skip skip &
    done
"""

import os
import sys
import threading
import time
from pathlib import Path
from typing import Callable

import torch
import torch.distributed as dist

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DUMP_AFTER = float(os.environ.get("DUMP_AFTER", "3"))
FORMS = sys.argv[3:] or ["pickle", "json"]


def dump() -> None:
    recorder = torch._C._distributed_c10d
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    if "pickle" in FORMS:
        (folder / f"rank_{RANK}").write_bytes(recorder._dump_fr_trace(True, True, False))
    if "json" in FORMS:
        (folder / f"rank_{RANK}.json").write_bytes(recorder._dump_fr_trace_json(True, False))


def sleep() -> None:
    time.sleep(10000)


def train(step: int) -> None:
    """A step of all ranks: gradients of two layers, then the loss."""
    dist.all_reduce(torch.ones(12))
    dist.all_reduce(torch.ones(3))
    dist.all_reduce(torch.ones(1))


def skip() -> None:
    """Rank 1 leaves the second layer's all-reduce of step 2 out."""
    for step in range(4):
        dist.all_reduce(torch.ones(12))
        if step != 2 or RANK != 1:
            dist.all_gather([torch.empty(3) for _ in range(WORLD)], torch.ones(3))
        dist.all_reduce(torch.ones(1))


def skip_alike() -> None:
    """As skip, where all calls are alike, so that they pair one off until the end."""
    for step in range(4):
        for layer in range(3):
            if (step, layer) != (2, 1) or RANK != 1:
                dist.all_reduce(torch.ones(4))
    sleep()


def asleep() -> None:
    """Rank 2 sleeps before step 2."""
    for step in range(4):
        if step == 2 and RANK == 2:
            sleep()
        train(step)


def pairs() -> None:
    """Of 4 ranks: rank 1 sleeps before the first call of its pair; ranks 2 and 3 go on to another."""
    groups = [dist.new_group(pair, group_desc="TENSOR_PARALLEL") for pair in ([0, 1], [2, 3])]
    train(0)
    if RANK == 1:
        sleep()
    dist.all_reduce(torch.ones(5), group=groups[RANK // 2])
    sleep()


def asleep_at_once() -> None:
    """Rank 1 calls nothing at all."""
    if RANK == 1:
        sleep()
    train(0)


def order() -> None:
    """In step 2 rank 0 takes the two groups in the other order."""
    a, b = dist.new_group(list(range(WORLD))), dist.new_group(list(range(WORLD)))
    for step in range(4):
        train(step)
        for group in (b, a) if step == 2 and RANK == 0 else (a, b):
            dist.all_reduce(torch.ones(5), group=group)


def order_of_calls() -> None:
    """In step 2 rank 0 makes two calls of one group in the other order."""
    for step in range(4):
        train(step)
        calls = [lambda: dist.all_gather([torch.empty(3) for _ in range(WORLD)], torch.ones(3)),
                 lambda: dist.broadcast(torch.ones(7), 0)]
        for call in reversed(calls) if step == 2 and RANK == 0 else calls:
            call()


def subgroup() -> None:
    """Rank 2 leaves out the call of group [1, 2] in step 2 and goes on to the next step."""
    pair = dist.new_group([1, 2], group_desc="pair")
    for step in range(4):
        train(step)
        if RANK in (1, 2) and (step != 2 or RANK != 2):
            dist.all_reduce(torch.ones(5), group=pair)


def subgroup_first() -> None:
    """Rank 2 leaves out the only call of group [1, 2]."""
    pair = dist.new_group([1, 2], group_desc="pair")
    other = dist.new_group([0, 2], group_desc="other")
    train(0)
    if RANK == 1:
        dist.all_reduce(torch.ones(5), group=pair)
    train(1)
    del other


def send() -> None:
    """Rank 0 sends to rank 1, which never receives and goes on."""
    for step in range(3):
        train(step)
        if RANK == 0 and step == 1:
            dist.send(torch.ones(1000000), 1)


def left_out() -> None:
    """In step 3 rank 0 leaves the message to rank 1 out, which waits in it."""
    steps_with_messages(RANK == 0)


def received_twice() -> None:
    """In step 3 rank 1 waits for a second message, which rank 0 never sent."""
    steps_with_messages(False, lambda: RANK == 1 and dist.recv(torch.empty(4), 0))


def asleep_among_messages() -> None:
    """In step 3 rank 1 sleeps after the message that it received."""
    steps_with_messages(False, lambda: RANK == 1 and sleep())


def steps_with_messages(leaves_out: bool, more: "Callable[[], object]" = lambda: None) -> None:
    """Rank 0 sends to rank 1 in each step. `leaves_out`: not in step 3; `more`: then what."""
    for step in range(5):
        train(step)
        if RANK == 0 and not (leaves_out and step == 3):
            dist.send(torch.ones(4), 1)
        if RANK == 1:
            dist.recv(torch.empty(4), 0)
        if step == 3:
            more()


def receive() -> None:
    """Ranks 0 and 1 receive from each other and send afterwards."""
    train(0)
    if RANK < 2:
        dist.recv(torch.empty(4), 1 - RANK)
        dist.send(torch.ones(4), 1 - RANK)
    train(1)


def running() -> None:
    """Right, and dumped while it runs: layers of several sizes, computing in between."""
    pair = dist.new_group([0, 1], group_desc="pair")
    step = 0
    while True:
        x = torch.randn(200, 200)
        x = x @ x
        train(step)
        if RANK < 2:
            dist.all_reduce(torch.ones(5), group=pair)
        time.sleep(0.0005 * RANK)
        step += 1


def running_ddp() -> None:
    """The same by DistributedDataParallel, of which building the first takes seconds."""
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 4)),
        bucket_cap_mb=0.01)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        optimizer.zero_grad()
        model(torch.randn(16, 64)).sum().backward()
        optimizer.step()


def computing() -> None:
    """Right, and dumped while rank 0 alone computes, as in an evaluation, before all meet again."""
    for step in range(2):
        train(step)
    if RANK == 0:
        sleep()
    dist.barrier()


def ended() -> None:
    """Right, and dumped at its end."""
    pair = dist.new_group([0, 1], group_desc="pair")
    for step in range(3):
        train(step)
        if RANK < 2:
            dist.all_reduce(torch.ones(5), group=pair)
    dist.barrier()
    sleep()


def dump_later() -> None:
    time.sleep(DUMP_AFTER)
    dump()
    folder = Path(sys.argv[2])
    while len(list(folder.glob("rank_*"))) < len(FORMS) * WORLD:
        time.sleep(0.1)  # until the others have dumped: they notice when a rank ends
    os._exit(0)


dist.init_process_group("gloo")
threading.Thread(target=dump_later, daemon=True).start()
globals()[sys.argv[1]]()
sleep()
