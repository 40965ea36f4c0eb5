"""Small training jobs as people write them, none of which knows that it is recorded.

usage: jobs.py JOB [VARIANT]     a process for each rank, started as torchrun does

JOB is a function below, VARIANT what is wrong with it; without one the job is right.
"""

import os
import signal
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
VARIANT = sys.argv[2] if len(sys.argv) > 2 else ""


class TwoTowers(nn.Module):
    """Text, and an image encoder that only batches with images use."""

    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 16))
        self.text = nn.Linear(8, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, text, image=None):
        hidden = self.text(text)
        if image is not None:
            hidden = hidden + self.image(image)
        return self.head(hidden)


def ddp():
    """text-only: in step 2 the last rank's batch has no image. frozen: rank 1 freezes its tower."""
    towers = TwoTowers()
    towers.image.requires_grad_(VARIANT != "frozen" or RANK != 1)
    model = DDP(towers, find_unused_parameters=VARIANT == "find-unused", bucket_cap_mb=0.001)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(4):
        image = torch.randn(4, 8)
        if VARIANT in ("text-only", "find-unused") and step == 2 and RANK == WORLD - 1:
            image = None
        loss = model(torch.randn(4, 8), image).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.head = nn.Linear(8, 2)

    def forward(self, x, leave_out=None):
        for i, block in enumerate(self.blocks):
            if i != leave_out:
                x = F.relu(block(x))
        return self.head(x)


def fsdp2():
    """dropped-layer: in step 1 rank 1 leaves a block out."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (WORLD,))
    model = Blocks()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(3):
        drops = VARIANT == "dropped-layer" and step == 1 and RANK == 1
        model(torch.randn(4, 8), leave_out=1 if drops else None).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


class Block(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.relu(self.up(x)))


def _tensor_parallel():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, RowwiseParallel, parallelize_module)
    mesh = init_device_mesh("cpu", (WORLD // 2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = nn.ModuleDict({"a": Block(), "b": Block(), "head": Block()})
    for block in model.values():
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return mesh, model


def tensor_data():
    """DTensor's tensor parallelism under hand-made data parallelism.

    head: only the first rank of a tensor group runs the head. ragged: rank 1 pads its batch to
    another length than rank 0 of its tensor group. clip: rank 0 does not clip.
    """
    mesh, model = _tensor_parallel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(3):
        torch.manual_seed(100 * step + mesh["dp"].get_local_rank())
        length = 6 if not (VARIANT == "ragged" and step == 1 and RANK == 1) else 9
        x = model["b"](model["a"](torch.randn(2, length, 16)))
        if not (VARIANT == "head" and step == 1 and RANK % 2 == 1):
            x = model["head"](x)
        x.square().mean().backward()
        for p in model.parameters():
            if p.grad is not None:
                local = p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad
                dist.all_reduce(local, group=mesh["dp"].get_group())
        if not (VARIANT == "clip" and step == 1 and RANK == 0):
            total = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if hasattr(total, "full_tensor"):
                total.full_tensor()
        optimizer.step()
        optimizer.zero_grad()


def save():
    """rank0-only: rank 0 alone gathers whole parameters to save them."""
    mesh, model = _tensor_parallel()
    for p in model.parameters():
        whole = p.full_tensor() if VARIANT != "rank0-only" or RANK == 0 else None
        del whole
    dist.barrier()


def _sharded(mesh=None):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = mesh or init_device_mesh("cpu", (WORLD,))
    model = nn.Sequential(Block(), Block(), Block())
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def _train(model, after_step):
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(3):
        model(torch.randn(4, 16)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        after_step(step)


def validate():
    """FSDP2, and a validation after step 1. rank0: rank 0 alone validates."""
    model = _sharded()

    def validation(step):
        if step == 1 and (VARIANT != "rank0" or RANK == 0):
            with torch.no_grad():
                model(torch.randn(2, 16))  # the line of the validation

    _train(model, validation)


def full_state():
    """FSDP2, and its whole state after step 1. rank0: rank 0 alone asks for it."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    model = _sharded()

    def save(step):
        if step == 1 and (VARIANT != "rank0" or RANK == 0):
            get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))

    _train(model, save)


def replicas():
    """Two sharded replicas; after step 1 the first one saves. half: and then waits for all."""
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", (2, WORLD // 2), mesh_dim_names=("replicate", "shard"))
    model = _sharded(mesh)

    def save(step):
        if step == 1 and RANK < WORLD // 2:
            for parameter in model.parameters():
                parameter.full_tensor()
        if step == 1 and (VARIANT != "half" or RANK < WORLD // 2):
            dist.barrier()

    _train(model, save)


def stages():
    """A pipeline by hand. lost: the last stage receives a micro-batch less in step 2."""
    stage = Block()
    for step in range(4):
        for _ in range(2 if VARIANT == "lost" and step == 2 and RANK == WORLD - 1 else 3):
            x = torch.randn(2, 16)
            if RANK > 0:
                dist.recv(x, RANK - 1)
            y = stage(x).detach()
            if RANK < WORLD - 1:
                dist.send(y, RANK + 1)
        dist.all_reduce(torch.ones(1))


def barrier():
    """DDP, and a barrier after a save. rank0: rank 0 alone waits."""
    model = DDP(nn.Linear(16, 4))

    def save(step):
        if step == 1 and (VARIANT != "rank0" or RANK == 0):
            dist.barrier()

    _train(model, save)


def functional():
    """Rank 0 alone uses the last result. skip: rank 1 leaves out the second reduction."""
    import torch.distributed._functional_collectives as funcol
    x = torch.ones(8) * RANK
    for step in range(3):
        x = funcol.all_reduce(x, "sum", dist.group.WORLD)
        x = x * 0.5
        if not (VARIANT == "skip" and step == 1 and RANK == 1):
            y = funcol.all_gather_tensor(x.sum(dim=0, keepdim=True), 0, dist.group.WORLD)
            x = x + y.sum()
    float(x.sum())
    total = funcol.all_reduce(x.sum().reshape(1), "sum", dist.group.WORLD)
    if RANK == 0:
        print(float(total))


def pipeline():
    """micro-batches: the last stage expects one micro-batch more."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
    stage_module = nn.Linear(8, 8)
    stage = PipelineStage(stage_module, RANK, WORLD, torch.device("cpu"))
    last = RANK == WORLD - 1
    micro_batches = 4 if not (VARIANT == "micro-batches" and last) else 5
    schedule = ScheduleGPipe(stage, micro_batches, loss_fn=lambda out, target: (out - target).square().mean())
    size = 20
    for _ in range(2):
        if RANK == 0:
            schedule.step(torch.randn(size, 8))
        elif last:
            schedule.step(target=torch.randn(size, 8), losses=[])
        else:
            schedule.step()


def experts():
    """Tokens to the ranks of their experts. stale: rank 0 sends by the last step's counts."""
    counts = None
    for step in range(3):
        torch.manual_seed(step * WORLD + RANK)
        tokens = torch.randn(12, 4)
        owner = torch.randint(0, WORLD, (12,))
        if counts is None or not (VARIANT == "stale" and step == 1 and RANK == 0):
            counts = torch.bincount(owner, minlength=WORLD)
        told = torch.bincount(owner, minlength=WORLD)
        coming = torch.empty_like(told)
        dist.all_to_all_single(coming, told)
        received = torch.empty(int(coming.sum()), 4)
        dist.all_to_all_single(received, tokens[owner.argsort()], coming.tolist(), counts.tolist())
        back = torch.empty(12, 4)
        dist.all_to_all_single(back, received * 2, counts.tolist(), coming.tolist())
    dist.barrier()


def accumulation():
    """Three micro-batches to a step under no_sync. early: rank 1 synchronises one too early."""
    model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    import contextlib
    for step in range(3):
        for micro in range(3):
            last = micro == (1 if VARIANT == "early" and step == 1 and RANK == 1 else 2)
            with contextlib.nullcontext() if last else model.no_sync():
                model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        loss = torch.ones(1)
        dist.all_reduce(loss)


def clip():
    """FSDP2, and its gradients clipped. some: only rank 0 does."""
    from torch.distributed.fsdp import fully_shard
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(3):
        model(torch.randn(4, 8)).sum().backward()
        if VARIANT != "some" or step != 1 or RANK == 0:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            float(norm.full_tensor())
        optimizer.step()
        optimizer.zero_grad()


def join():
    """Ranks with different numbers of batches. bare: without Join."""
    from torch.distributed.algorithms.join import Join
    import contextlib
    model = DDP(nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with contextlib.nullcontext() if VARIANT == "bare" else Join([model]):
        for _ in range(3 + 2 * (RANK % 2)):
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    dist.barrier()


def sleeper():
    """A rank that loads its batch very long. asleep: for ever. given-up: and the others have a timeout."""
    model = DDP(nn.Linear(8, 4))
    for step in range(3):
        if VARIANT in ("asleep", "given-up") and step == 1 and RANK == 2:
            time.sleep(10000)
        model(torch.randn(4, 8)).sum().backward()


def endless():
    """Trains until somebody stops it."""
    model = DDP(nn.Linear(8, 4))
    while True:
        time.sleep(0.01)
        model(torch.randn(4, 8)).sum().backward()


def raises():
    """batch: rank 1's loader raises in step 1. start: rank 1 raises before its first call.

    wrapped: what it raises is raised again as another exception. exits: it ends by sys.exit().
    """
    if VARIANT == "start" and RANK == 1:
        raise FileNotFoundError("no tokenizer")
    model = DDP(nn.Linear(8, 4))
    for step in range(3):
        if VARIANT == "batch" and step == 1 and RANK == 1:
            raise ValueError("no image in the batch")
        if VARIANT == "exits" and step == 1 and RANK == 1:
            sys.exit(3)
        if VARIANT == "wrapped" and step == 1 and RANK == 1:
            try:
                raise ValueError("no image in the batch")
            except ValueError as error:
                raise RuntimeError("stage 1\n  failed") from error
        model(torch.randn(4, 8)).sum().backward()
    dist.barrier()


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        if VARIANT == "worker" and RANK == 1 and i == 3:
            raise OSError("truncated JPEG")
        return torch.randn(8)


def loader():
    """A process reads the batches. worker: it raises on rank 1."""
    model = DDP(nn.Linear(8, 4))
    for batch in torch.utils.data.DataLoader(Images(), num_workers=1, multiprocessing_context="fork"):
        model(batch).sum().backward()
    dist.barrier()


def checkpoint():
    """FSDP2, and a checkpoint that a thread writes. rank0: on rank 0 alone.

    full: no thread, and rank 1's disk is full.
    """
    import torch.distributed.checkpoint as dcp

    class Full(dcp.FileSystemWriter):
        def write_data(self, *args, **kwargs):
            raise OSError(28, "No space left on device")

    group = dist.new_group(list(range(WORLD)))
    model = _sharded()
    saves = []

    def save(step):
        if step == 1 and (VARIANT != "rank0" or RANK == 0):
            path = os.environ["LOCKSTEP_RECORD_DIR"] + ".checkpoint"
            if VARIANT == "full":
                writer = Full if RANK == 1 else dcp.FileSystemWriter
                dcp.save({"model": model.state_dict()}, storage_writer=writer(path))
                return
            saves.append(dcp.async_save({"model": model.state_dict()}, checkpoint_id=path,
                                        process_group=group))

    _train(model, save)
    for saved in saves:
        saved.result()
    dist.barrier()


def new_groups():
    """Pairs of ranks. some: ranks 0 and 1 alone make them, which are not all of their members.

    opposite: the members alone make theirs, in an order of their own.
    """
    dist.barrier()
    if VARIANT == "opposite":
        for other in (RANK + 1) % WORLD, (RANK - 1) % WORLD:
            dist.new_group(sorted([RANK, other]), use_local_synchronization=True)
    if VARIANT != "some" or RANK < 2:
        for pair in [0, 2], [1, 3]:
            group = dist.new_group(pair)
            if RANK in pair:
                dist.all_reduce(torch.ones(4), group=group)
    dist.all_reduce(torch.ones(3))


def isend():
    """forgotten: nobody waits for the messages, which Gloo drops with their Works, unless they
    are received at once. first: nor does anything come before."""
    if VARIANT != "first":
        dist.barrier()
    if VARIANT in ("forgotten", "first") and RANK == 1:
        time.sleep(1)
    for step in range(3):
        x = torch.ones(4)
        if RANK == 0:
            work = dist.isend(x, 1)
            if VARIANT not in ("forgotten", "first"):
                work.wait()
        else:
            dist.recv(x, 0)
    dist.barrier()


def coalesced():
    """less: in step 1 rank 1 reduces a tensor less."""
    for step in range(3):
        less = VARIANT == "less" and RANK == 1 and step == 1
        dist.all_reduce_coalesced([torch.ones(4) for _ in range(2 if less else 3)])
    dist.barrier()


def pipeline_sleeps():
    """Schedule1F1B. asleep: rank 1 sleeps in a forward, with a message on its way."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    class Stage(nn.Linear):
        calls = 0

        def forward(self, x):
            Stage.calls += 1
            if VARIANT == "asleep" and RANK == 1 and Stage.calls == 7:
                time.sleep(10000)
            return super().forward(x)

    stage = PipelineStage(Stage(8, 8), RANK, WORLD, torch.device("cpu"))
    schedule = Schedule1F1B(stage, 4, loss_fn=lambda out, target: (out - target).square().mean())
    for _ in range(2):
        if RANK == 0:
            schedule.step(torch.randn(20, 8))
        elif RANK == WORLD - 1:
            schedule.step(target=torch.randn(20, 8), losses=[])
        else:
            schedule.step()
        dist.barrier()


def two_groups():
    """crossed: ranks 0 and 1 enter two groups in opposite orders, and rank 3 computes on."""
    a, b = dist.new_group([0, 1]), dist.new_group([0, 1])
    x = torch.ones(4)
    dist.all_reduce(x)
    if RANK < 2:
        first, second = (a, b) if VARIANT != "crossed" or RANK == 0 else (b, a)
        dist.all_reduce(x, group=first)
        dist.all_reduce(x, group=second)
    elif VARIANT == "crossed":
        end = time.monotonic() + 10000
        while time.monotonic() < end:
            torch.randn(64, 64) @ torch.randn(64, 64)
    dist.barrier()


def inference():
    """Collectives in inference mode. skip: rank 1 leaves one out."""
    with torch.inference_mode():
        for i in range(3):
            if VARIANT != "skip" or RANK != 1 or i != 1:
                dist.all_gather_into_tensor(torch.empty(4 * WORLD), torch.ones(4))
    dist.barrier()


def threads():
    """A thread reduces metrics in a group of its own. shared: in that of the gradients."""
    own = dist.new_group(list(range(WORLD)))
    group = dist.group.WORLD if VARIANT == "shared" else own
    dist.barrier()

    def log():  # comes first on rank 0, where the program comes while it waits, and last on rank 1
        time.sleep(1.2 * RANK)
        for _ in range(3):
            dist.all_reduce(torch.ones(4), group=group)  # the line of the metrics

    thread = threading.Thread(target=log)
    thread.start()
    time.sleep(0.3 * (1 + RANK))
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    thread.join()


def again():
    """The groups are destroyed and made again. skip: then rank 1 leaves a call out."""
    for stage in range(2):
        if stage == 1:
            dist.destroy_process_group()
            dist.init_process_group("gloo", init_method=f"file://{os.environ['LOCKSTEP_RECORD_DIR']}.store",
                                    rank=RANK, world_size=WORLD)
        pair = dist.new_group([0, 1])
        for step in range(3):
            dist.all_reduce(torch.ones(2), group=pair)
            if VARIANT != "skip" or stage == 0 or RANK != 1 or step != 1:
                dist.all_gather_into_tensor(torch.empty(4 * WORLD), torch.ones(4))
    dist.barrier()


def roots():
    """own: each rank reduces to itself."""
    for step in range(3):
        dist.all_reduce(torch.ones(8))
        dist.reduce(torch.ones(1), dst=RANK if VARIANT == "own" and step == 1 else 0)


def ring():
    """Keys and values go round. short: rank 1 leaves out the last hop of step 1."""
    for step in range(3):
        for hop in range(2 if VARIANT == "short" and step == 1 and RANK == 1 else 3):
            mine, theirs = torch.ones(16), torch.empty(16)
            if RANK % 2 == 0:
                dist.send(mine, (RANK + 1) % WORLD)
                dist.recv(theirs, (RANK - 1) % WORLD)
            else:
                dist.recv(theirs, (RANK - 1) % WORLD)
                dist.send(mine, (RANK + 1) % WORLD)
        dist.all_reduce(torch.ones(1))


signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start what is in the background without
dist.init_process_group("gloo", timeout=timedelta(seconds=3 if VARIANT == "given-up" else 1800))
globals()[sys.argv[1]]()
dist.destroy_process_group()
