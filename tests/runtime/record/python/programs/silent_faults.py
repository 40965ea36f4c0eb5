"""Silent faults of the kinds that TrainCheck and TTrace describe, watched by lockstep_watch.

usage: silent_faults.py JOB [wrong]     a process for each rank, started as torchrun does

Without `wrong` the job is right. Each function says what is wrong, and where it first shows.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from lockstep_watch import watch

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
WRONG = "wrong" in sys.argv
STEPS = 4


def data(step):
    generator = torch.Generator().manual_seed(1000 * step + RANK)
    return torch.randn(8, 8, generator=generator)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4))


def average_gradients(parameters, group=None, divisor=None):
    for p in parameters:
        dist.all_reduce(p.grad, group=group)
        p.grad /= divisor or dist.get_world_size(group)


def train(net, optimizer, after_backward=lambda step: None, output=None, after_step=lambda step: None):
    """Trains on the mean square of `output(step)`; by default, of what the net makes of the data."""
    for step in range(STEPS):
        made = output(step) if output else net(data(step))
        made.square().mean().backward()
        after_backward(step)
        optimizer.step()
        optimizer.zero_grad()
        after_step(step)


def train_on(batches, net, optimizer):
    for batch in batches:
        net(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


# Imported where they are needed: these modules take a second, which most jobs can do without.

def mesh_of(shape, names):
    from torch.distributed.device_mesh import init_device_mesh
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def split_linears(net, mesh, up="up", down="down"):
    """Tensor parallelism: each rank has some columns of `up`, and the same rows of `down`."""
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, RowwiseParallel, parallelize_module)
    parallelize_module(net, mesh, {up: ColwiseParallel(), down: RowwiseParallel()})


def sharded(net, mesh=None):
    from torch.distributed.fsdp import fully_shard
    fully_shard(net, mesh=mesh)
    return net


def clip():
    """Gradients are clipped before they are reduced: clip.norm differs between ranks in step 1."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    watch(net, optimizer, replicas=dist.group.WORLD)

    def reduce(_):
        if WRONG:
            nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        average_gradients(net.parameters())
        if not WRONG:
            nn.utils.clip_grad_norm_(net.parameters(), 0.01)

    train(net, optimizer, reduce)


class Block(nn.Module):
    """Tensor parallelism with its norm on a part of the sequence (sequence parallelism)."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(torch.relu(self.up(self.norm(x)[:1].expand_as(x))))


def tensor_parallel():
    """The norm's gradients are not reduced over the tensor group: norm.weight diverges in step 1."""
    mesh = mesh_of((WORLD,), ("tp",))
    torch.manual_seed(0)
    net = Block()
    split_linears(net, mesh)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    watch(net, optimizer)

    def output(step):
        torch.manual_seed(step)
        return net(torch.randn(4, 8) + (RANK if WRONG else 0))

    train(net, optimizer, output=output)


def stale():
    """Rank 1 goes on from the checkpoint of a step before: its parameters differ in step 0."""
    net = model()
    if WRONG and RANK == 1:
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(1.01)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    watch(net, optimizer, replicas=dist.group.WORLD)
    train(net, optimizer, lambda step: average_gradients(net.parameters()))


def shard():
    """A hand-made sharded optimizer forgets to broadcast the last rank's shard: 3.bias in step 1."""
    net = model()
    parameters = list(net.parameters())
    owner = [i * WORLD // len(parameters) for i in range(len(parameters))]
    optimizer = torch.optim.SGD([p for p, o in zip(parameters, owner) if o == RANK], lr=0.1)
    watch(net, optimizer, replicas=dist.group.WORLD)
    for step in range(STEPS):
        net(data(step)).square().mean().backward()
        average_gradients(parameters)
        optimizer.step()
        for p, o in zip(parameters, owner):
            if not (WRONG and p is parameters[-1]):
                dist.broadcast(p.data, o)
        net.zero_grad()


def loader():
    """The loader gives all ranks the same samples: step 1."""
    samples = TensorDataset(torch.randn(48, 8))
    sampler = None if WRONG else DistributedSampler(samples)
    batches = DataLoader(samples, batch_size=4, sampler=sampler, shuffle=False)
    net = DDP(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    watch(net, optimizer, batches)
    train_on((batch for (batch,) in batches), net, optimizer)


def mixed_precision():
    """Rank 1 alone meets an overflow in step 2 and skips its update: 0.weight in step 2."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    watch(net, optimizer, replicas=dist.group.WORLD)
    for step in range(STEPS):
        loss = net(data(step)).square().mean()
        scaler.scale(loss).backward()
        average_gradients(net.parameters())
        if step == 1 and RANK == 1 and WRONG:
            next(net.parameters()).grad[0, 0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def tied():
    """The head is tied to the embedding of the first stage, whose gradient it never gets: step 1."""
    torch.manual_seed(0)
    table = torch.randn(16, 8)
    net = nn.Module()
    ends = dist.new_group([0, WORLD - 1])
    name = "embedding" if RANK == 0 else "head" if RANK == WORLD - 1 else "middle"
    net.register_parameter(name, nn.Parameter(table.clone()))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    watch(net, optimizer, tied={"embedding": ends, "head": ("embedding", ends)})

    def reduce(_):
        if not WRONG and RANK in (0, WORLD - 1):
            average_gradients(net.parameters(), ends)

    train(net, optimizer, reduce, lambda step: data(step) @ getattr(net, name).T)


def dropout():
    """In a tensor group, whose ranks need one mask for a replicated activation, seeds differ: step 1."""
    mesh = mesh_of((WORLD,), ("tp",))
    torch.manual_seed(0)
    net = nn.ModuleDict({"up": nn.Linear(8, 16), "down": nn.Linear(16, 8), "norm": nn.LayerNorm(8)})
    split_linears(net, mesh)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    watch(net, optimizer, same_random=mesh.get_group())

    def output(step):
        torch.manual_seed(step)
        x = torch.randn(4, 8)
        if WRONG:
            torch.manual_seed(100 * step + RANK)
        return nn.functional.dropout(net["norm"](net["down"](torch.relu(net["up"](x)))), 0.5)

    train(net, optimizer, output=output)


def rate():
    """Rank 1's schedule is a step ahead: lr in step 1."""
    net = DDP(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    watch(net, optimizer)
    for step in range(STEPS):
        net(data(step)).square().mean().backward()
        if WRONG and RANK == 1 and step == 0:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()


def evaluation():
    """Rank 0 stays in evaluation mode after its validation: training in step 3."""
    net = DDP(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    watch(net, optimizer)

    def validate(step):
        if step == 1 and RANK == 0:
            net.eval()
            with torch.no_grad():
                net.module(data(step))
            net.train(not WRONG)

    train(net, optimizer, after_step=validate)


def precision():
    """Rank 1 alone computes in bfloat16: autocast in step 1."""
    net = DDP(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    watch(net, optimizer)
    with torch.autocast("cpu", torch.bfloat16, enabled=not WRONG or RANK == 1):
        train(net, optimizer)


def decay():
    """Rank 1's optimizer has another weight decay: weight_decay in step 1."""
    net = DDP(model())
    optimizer = torch.optim.AdamW(net.parameters(), weight_decay=0.1 if WRONG and RANK == 1 else 0.01)
    watch(net, optimizer)
    train(net, optimizer)


def experts():
    """Experts' gradients are divided by the world, not by their two replicas: expert.weight, step 1."""
    net = model()
    expert = nn.Linear(4, 4)
    with torch.no_grad():
        expert.weight.fill_(0.1 + RANK % 2)
    net.add_module("expert", expert)
    mine = [dist.new_group([e, e + 2]) for e in (0, 1)][RANK % 2]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    watch(net, optimizer, replicas={"expert": mine, "": dist.group.WORLD}, mean=True)

    def reduce(_):
        average_gradients(expert.parameters(), mine, WORLD if WRONG else None)
        average_gradients([p for n, p in net.named_parameters() if "expert" not in n])

    train(net, optimizer, reduce)


def hybrid():
    """Hybrid sharding: rank 3's shard is of an older checkpoint, and rank 1 holds the right one."""
    net = sharded(model(), mesh_of((2, WORLD // 2), ("replicate", "shard")))
    if WRONG and RANK == 3:
        with torch.no_grad():
            net[0].weight.to_local().mul_(0.99)
    optimizer = torch.optim.AdamW(net.parameters())
    watch(net, optimizer)
    train(net, optimizer)


def shard_left_out():
    """FSDP2: rank 1's optimizer lacks a parameter, whose shard stays: 3.weight in step 1."""
    net = sharded(model())
    optimizer = torch.optim.SGD([p for name, p in net.named_parameters()
                                 if not (WRONG and RANK == 1 and name == "3.weight")], lr=0.1)
    watch(net, optimizer)
    train(net, optimizer)


def tensor_and_data():
    """FSDP2 over a tensor group whose norm, a class of the program, sees other activations on rank 1."""

    class OwnRMSNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8))

        def forward(self, x):
            return self.weight * x / x.square().mean(-1, keepdim=True).sqrt()

    mesh = mesh_of((WORLD // 2, 2), ("dp", "tp"))
    torch.manual_seed(0)
    net = nn.ModuleDict({"norm": OwnRMSNorm(), "up": nn.Linear(8, 16), "down": nn.Linear(16, 8)})
    split_linears(net, mesh["tp"])
    for part in net.values():
        sharded(part, mesh["dp"])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    watch(net, optimizer)

    def output(step):
        torch.manual_seed(2 * step + mesh["dp"].get_local_rank())
        normed = net["norm"](torch.randn(4, 8)) * (2 if WRONG and RANK == 1 else 1)
        return net["down"](torch.relu(net["up"](normed)))

    train(net, optimizer, output=output)


def unsaid():
    """Data parallelism by hand, which watch() is not told about; 1.bias is left out: step 1."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    watch(net, optimizer)

    def reduce(_):
        average_gradients([p for name, p in net.named_parameters() if not WRONG or name != "1.bias"])

    train(net, optimizer, reduce)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        samples = torch.randn(48, 8, generator=torch.Generator().manual_seed(1))
        yield from samples if WRONG else samples[RANK::WORLD]


def stream():
    """A stream that all ranks read whole: step 1."""
    net = DDP(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    batches = DataLoader(Stream(), batch_size=4)
    watch(net, optimizer, batches)
    train_on(batches, net, optimizer)


class Restarts:
    """A batch sampler that hands out a batch twice on rank 1."""

    def __init__(self, inner):
        self.inner = inner

    def __iter__(self):
        before = None
        for i, batch in enumerate(self.inner):
            yield before if WRONG and RANK == 1 and i == 2 else batch
            before = batch


def repeats():
    """Rank 1's loader gives the second batch again: step 3."""
    samples = TensorDataset(torch.randn(96, 8))
    sampler = DistributedSampler(samples)
    batches = DataLoader(samples, batch_sampler=Restarts(
        torch.utils.data.BatchSampler(sampler, 4, False)), num_workers=1)
    net = DDP(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    watch(net, optimizer, batches)
    train_on((batch for (batch,) in batches), net, optimizer)


def tensor_batches():
    """The two ranks of a tensor group read different samples: step 1."""
    mesh = mesh_of((WORLD,), ("tp",))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    split_linears(net, mesh, "0", "2")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    samples = TensorDataset(torch.randn(48, 8, generator=torch.Generator().manual_seed(1)))
    batches = DataLoader(samples, 4, sampler=DistributedSampler(samples) if WRONG else None)
    watch(net, optimizer, batches)
    train_on((batch for (batch,) in batches), net, optimizer)


def unscale():
    """Gradients are unscaled before they are reduced; rank 1 alone sees an overflow in step 2."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    watch(net, optimizer, replicas=dist.group.WORLD, mean=not WRONG)
    for step in range(STEPS):
        scaler.scale(net(data(step)).square().mean()).backward()
        if step == 1 and RANK == 1 and WRONG:
            next(net.parameters()).grad[0, 0] = float("inf")
        scaler.unscale_(optimizer)
        for p in net.parameters():
            p.grad.nan_to_num_(posinf=0.0)
        average_gradients(net.parameters())
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def forgotten():
    """Rank 1 does not zero its gradients after the first step, so that they are in the second: step 2."""
    net = DDP(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    watch(net, optimizer)
    for step in range(STEPS):
        loss = net(data(step)).square().mean()
        if not WRONG or step != 1 or RANK != 1:
            optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()


def copied():
    """The optimizer holds the parameters of the model that was copied: nothing changes from step 1 on."""
    import copy
    first = model()
    net = DDP(copy.deepcopy(first))
    optimizer = torch.optim.AdamW((first if WRONG else net).parameters())
    watch(net, optimizer)

    def after_step(_):
        net.zero_grad()

    train(net, optimizer, after_step=after_step)


def alike():
    """Ranks drop parts of their own out, and are seeded alike: step 1."""
    net = DDP(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    watch(net, optimizer, different_random=dist.group.WORLD)
    torch.manual_seed(0 if WRONG else RANK)
    train(net, optimizer, output=lambda step: nn.functional.dropout(net(data(step)), 0.5))


def left_out():
    """Rank 1 leaves out the step of a batch whose loss is large: it is a step behind from step 3 on."""
    net = DDP(model())
    optimizer = torch.optim.AdamW(net.parameters())
    watch(net, optimizer)
    for step in range(STEPS):
        loss = net(data(step)).square().mean() * (1000 if RANK == 1 and step == 2 else 1)
        loss.backward()
        if not WRONG or loss.item() < 100:
            optimizer.step()
        optimizer.zero_grad()


def not_a_number():
    """Rank 1 divides by 0 in step 3, and gives NaN to all."""
    net = DDP(model())
    optimizer = torch.optim.AdamW(net.parameters())
    watch(net, optimizer, mean=True)
    for step in range(STEPS):
        scale = torch.tensor(0.0 if WRONG and RANK == 1 and step == 2 else 1.0)
        (net(data(step)) * scale / scale).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def still_evaluates():
    """All ranks stay in evaluation mode after a validation: step 3."""
    net = DDP(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    watch(net, optimizer)

    def validate(step):
        if step == 1:
            net.module.eval()
            with torch.no_grad():
                net.module(data(step))
            net.module.train(not WRONG)

    train(net, optimizer, after_step=validate)


def adversaries():
    """Two models: rank 1's discriminator keeps the generator's gradients in step 2."""
    torch.manual_seed(0)
    generator, discriminator = DDP(nn.Linear(8, 8)), DDP(nn.Linear(8, 1))
    of_generator = torch.optim.SGD(generator.parameters(), lr=0.1)
    of_discriminator = torch.optim.SGD(discriminator.parameters(), lr=0.1)
    watch(generator, of_generator)
    watch(discriminator, of_discriminator)
    for step in range(STEPS):
        made = generator(data(step))
        if not WRONG or step != 1 or RANK != 1:
            of_discriminator.zero_grad()
        (discriminator(data(step)) - discriminator(made.detach())).square().mean().backward()
        of_discriminator.step()
        of_generator.zero_grad()
        with discriminator.no_sync():  # these gradients of it are of no use
            discriminator(made).square().mean().backward()
        of_generator.step()


def accumulated():
    """The last micro-batch of step 3 is under no_sync(), too, so that nobody reduces: step 3."""
    import contextlib
    net = DDP(model())
    optimizer = torch.optim.AdamW(net.parameters())
    watch(net, optimizer)
    for step in range(STEPS):
        for micro in range(3):
            reduces = micro == 2 and not (WRONG and step == 2)
            with contextlib.nullcontext() if reduces else net.no_sync():
                (net(data(3 * step + micro)).square().mean() / 3).backward()
        optimizer.step()
        optimizer.zero_grad()


def adapters():
    """LoRA in bfloat16, by hand: the adapters are made with a seed of the rank: 0.down in step 0."""

    class Adapted(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner.requires_grad_(False)
            torch.manual_seed(RANK if WRONG else 0)
            self.down = nn.Parameter(torch.randn(2, inner.in_features, dtype=inner.weight.dtype))
            self.up = nn.Parameter(torch.zeros(inner.out_features, 2, dtype=inner.weight.dtype))

        def forward(self, x):
            return self.inner(x) + x @ self.down.T @ self.up.T

    net = model().bfloat16().requires_grad_(False)
    net[0] = Adapted(net[0])
    trained = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.01)
    watch(net, optimizer, replicas=dist.group.WORLD)
    train(net, optimizer, lambda step: average_gradients(trained),
          lambda step: net(data(step).bfloat16()).float())


def teacher():
    """A model and its average over the steps in one module; rank 1 leaves out an update: step 2."""
    import copy

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.student = model()
            self.teacher = copy.deepcopy(self.student).requires_grad_(False)

        def forward(self, x):
            return self.student(x) - self.teacher(x + 1)

    net = DDP(Both())
    optimizer = torch.optim.SGD(net.module.student.parameters(), lr=0.1)
    watch(net, optimizer)

    def follow(step):
        if WRONG and RANK == 1 and step == 1:
            return
        with torch.no_grad():
            for mean, p in zip(net.module.teacher.parameters(), net.module.student.parameters()):
                mean.lerp_(p, 0.1)

    train(net, optimizer, after_step=follow)


def recomputed():
    """Rank 1 recomputes its activations with another dropout mask than its tensor group: norm.* in step 1."""
    from torch.utils.checkpoint import checkpoint

    class Dropped(Block):
        def forward(self, x):
            return self.down(torch.relu(self.up(nn.functional.dropout(self.norm(x), 0.5))))

    mesh = mesh_of((WORLD,), ("tp",))
    torch.manual_seed(0)
    net = Dropped()
    split_linears(net, mesh)
    optimizer = torch.optim.AdamW(net.parameters())
    watch(net, optimizer)

    def output(step):
        torch.manual_seed(step)
        return checkpoint(net, torch.randn(4, 8, requires_grad=True), use_reentrant=False,
                          preserve_rng_state=not (WRONG and RANK == 1))

    train(net, optimizer, output=output)


def sequence():
    """A norm on parts of a sequence, in bfloat16, without SequenceParallel: norm.weight in step 1."""
    from torch.distributed.tensor import DTensor, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module)
    mesh = mesh_of((WORLD,), ("tp",))
    torch.manual_seed(0)
    net = nn.ModuleDict({"norm": nn.RMSNorm(8), "up": nn.Linear(8, 16), "down": nn.Linear(16, 8)}).bfloat16()
    plan = {"up": ColwiseParallel(input_layouts=Shard(1)), "down": RowwiseParallel(output_layouts=Shard(1))}
    parallelize_module(net, mesh, plan if WRONG else {**plan, "norm": SequenceParallel()})
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    watch(net, optimizer)

    def output(step):
        torch.manual_seed(step)
        mine = torch.randn(2, 8, 8).bfloat16().chunk(WORLD, 1)[RANK].contiguous()
        normed = net["norm"](mine if WRONG else DTensor.from_local(mine, mesh, [Shard(1)]))
        return net["down"](torch.relu(net["up"](normed))).float()

    train(net, optimizer, output=output)


def moments():
    """Rank 1 loads the optimizer of an older checkpoint: its moments differ in step 0."""
    import copy
    net = DDP(model().bfloat16())
    saved = []

    def a_step(optimizer, step):
        net(data(step).bfloat16()).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    before = torch.optim.AdamW(net.parameters())
    for step in range(2):
        a_step(before, step)
        saved.append(copy.deepcopy(before.state_dict()))
    optimizer = torch.optim.AdamW(net.parameters())
    optimizer.load_state_dict(saved[0 if WRONG and RANK == 1 else 1])
    watch(net, optimizer)
    for step in range(2, 2 + STEPS):
        a_step(optimizer, step)


def scalers():
    """Rank 1's GradScaler doubles its scale after two steps, the others' later: loss_scale in step 3."""
    net = DDP(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2 if WRONG and RANK == 1 else 1000)
    watch(net, optimizer)
    for step in range(STEPS):
        scaler.scale(net(data(step)).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def hybrid_samples():
    """Hybrid sharding: the sampler takes the rank among the shards for the rank: step 1."""
    mesh = mesh_of((2, WORLD // 2), ("replicate", "shard"))
    net = sharded(model(), mesh)
    optimizer = torch.optim.AdamW(net.parameters())
    samples = TensorDataset(torch.randn(96, 8, generator=torch.Generator().manual_seed(1)))
    sampler = (DistributedSampler(samples, WORLD // 2, mesh["shard"].get_local_rank()) if WRONG
               else DistributedSampler(samples))
    batches = DataLoader(samples, 4, sampler=sampler)
    watch(net, optimizer, batches)
    train_on((batch for (batch,) in batches), net, optimizer)


def zeroed():
    """zero_grad() in each micro-batch, so that only the last one's gradients are left: step 1."""
    import contextlib
    net = DDP(model())
    optimizer = torch.optim.AdamW(net.parameters())
    watch(net, optimizer)
    for step in range(STEPS):
        for micro in range(3):
            if WRONG or micro == 0:
                optimizer.zero_grad()
            with contextlib.nullcontext() if micro == 2 else net.no_sync():
                (net(data(3 * step + micro)).square().mean() / 3).backward()
        optimizer.step()


def unreduced():
    """FSDP2, accumulating: the reduction is off in all micro-batches of step 2."""
    net = sharded(model())
    optimizer = torch.optim.AdamW(net.parameters())
    watch(net, optimizer)
    for step in range(STEPS):
        for micro in range(2):
            net.set_requires_gradient_sync(micro == 1 and not (WRONG and step == 1))
            (net(data(2 * step + micro)).square().mean() / 2).backward()
        optimizer.step()
        optimizer.zero_grad()


def reduces_itself():
    """Right: the optimizer averages what each rank added up of its own gradients."""

    class Averaging(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 0.01})

        @torch.no_grad()
        def step(self):
            for p in self.param_groups[0]["params"]:
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                momentum.mul_(0.9).add_(p.grad)
                averaged = momentum.clone()
                dist.all_reduce(averaged)
                p.sub_(averaged, alpha=0.01 / WORLD)

    net = model()
    optimizer = Averaging(net.parameters())
    watch(net, optimizer, replicas=dist.group.WORLD)
    train(net, optimizer)


dist.init_process_group("gloo")
globals()[sys.argv[1]]()
dist.destroy_process_group()
