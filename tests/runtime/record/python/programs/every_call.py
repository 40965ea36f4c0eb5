"""Calls everything once that torch.distributed has, in groups of several kinds; 4 ranks."""

from typing import Any, Callable

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh

import lockstep_record

RANKS = 4


def collectives(rank: int) -> None:
    t, four = torch.ones(4), [torch.ones(4) for _ in range(RANKS)]
    dist.all_reduce(t)
    dist.reduce(t, 1, op=dist.ReduceOp.MIN)
    dist.broadcast(t, 2)
    dist.all_gather([torch.empty(4) for _ in range(RANKS)], t)
    dist.all_gather_into_tensor(torch.empty(16), t)
    dist.gather(t, four if rank == 3 else None, dst=3)
    dist.scatter(t, four if rank == 0 else None, src=0)
    dist.reduce_scatter(t, four, op=dist.ReduceOp.AVG)
    dist.reduce_scatter_tensor(torch.empty(1), t, op=dist.ReduceOp.PRODUCT)
    dist.all_to_all([torch.empty(1) for _ in range(RANKS)], [torch.ones(1) for _ in range(RANKS)])
    splits = [1, 2, 3, 4]
    dist.all_to_all_single(torch.empty(4 * (rank + 1)), torch.ones(10), [rank + 1] * RANKS, splits)
    dist.all_to_all_single(torch.empty(8), torch.ones(8))
    dist.barrier()
    work = dist.all_reduce(torch.ones(2, dtype=torch.bfloat16), async_op=True)
    dist.barrier()
    work.wait()
    with torch.inference_mode():
        dist.all_reduce(torch.ones(3))
    with lockstep_record.carries("loss"):
        dist.all_reduce(torch.ones(()), op=dist.ReduceOp.AVG)
    seven = dist.all_reduce(torch.ones(7), async_op=True).get_future()
    doubled = seven.then(lambda done: 2 * done.value()[0])
    dist.barrier()
    assert doubled.wait()[0] == 2 * RANKS


def messages(rank: int) -> None:
    t, after, before = torch.ones(5), (rank + 1) % RANKS, (rank - 1) % RANKS
    operations = [dist.P2POp(dist.isend, t, after), dist.P2POp(dist.irecv, torch.empty(5), before)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    if rank % 2 == 0:
        dist.send(t, rank + 1, tag=7)
    else:
        dist.recv(t, rank - 1, tag=7)


def in_groups(pair: Any, mesh: Any) -> None:
    t = torch.ones(6)
    dist.all_reduce(t, op=dist.ReduceOp.MAX, group=pair)
    total = functional.all_reduce(t, "max", mesh["tp"])
    assert total.sum() == 6
    part = functional.reduce_scatter_tensor(torch.ones(2, 3), "avg", 0, mesh["dp"])
    assert part.shape == (1, 3) and part.sum() == 3


def objects(rank: int) -> None:
    told: list[Any] = [None] * RANKS
    dist.all_gather_object(told, {"rank": rank})
    told = [{"batch size": 3, "from": rank} if rank == 0 else None]
    dist.broadcast_object_list(told, src=0)
    assert told == [{"batch size": 3, "from": 0}]
    out: list[Any] = [None]
    dist.scatter_object_list(out, ["a", "bb", "ccc", "dddd"] if rank == 0 else None, src=0)
    assert len(out[0]) == rank + 1


def make() -> Callable[[Any], None]:
    rank = dist.get_rank()
    pairs = [dist.new_group([0, 1], group_desc="pair"), dist.new_group([2, 3], group_desc="pair")]
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))

    def step(batch: Any) -> None:
        collectives(rank)
        messages(rank)
        in_groups(pairs[rank // 2], mesh)
        objects(rank)

    return step


def lockstep() -> dict[str, Any]:
    return {"build": make, "conditions": {"any": None}, "world_size": RANKS}
