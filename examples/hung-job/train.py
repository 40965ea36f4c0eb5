"""The job whose dumps are here: 8 ranks, tensor parallel by 2, data parallel by 4.

    torchrun --nproc-per-node 8 train.py

A rank's data loader does not come back (STALLED, in step 3); everybody else waits. After a while each
rank writes its Flight Recorder dump, as PyTorch's watchdog does for NCCL.
"""

import os
import sys
import threading

import torch
import torch.distributed as dist

TENSOR, STALLED, STALLED_STEP = 2, 5, 3
DUMP_AFTER_S = float(os.environ.get("DUMP_AFTER_S", "20"))
BATCH, WIDTH = 16, 256


def dump(rank):
    with open(f"nccl_trace_rank_{rank}", "wb") as file:
        file.write(torch._C._distributed_c10d._dump_fr_trace())
    os._exit(0)


def load_batch(rank, step):
    if rank == STALLED and step == STALLED_STEP:
        threading.Event().wait()  # a read from a file server that is gone
    return torch.ones(BATCH, WIDTH) * (rank // TENSOR + step)


def layer(x, weight, tensor_group):
    y = x @ weight
    dist.all_reduce(y, group=tensor_group)  # row-parallel: the parts are added up
    return y


def train_step(rank, step, weights, tensor_group, data_group):
    x = load_batch(rank, step)
    activations = []
    for weight in weights:
        activations.append(x)
        x = layer(x, weight, tensor_group).tanh()
    for weight, x in reversed(list(zip(weights, activations))):
        gradient = x.t() @ x / BATCH
        dist.all_reduce(gradient, group=data_group)
        weight -= 1e-3 * gradient / dist.get_world_size(data_group)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    tensor_groups = [
        dist.new_group(range(first, first + TENSOR), group_desc="TENSOR_MODEL_PARALLEL_GROUP")
        for first in range(0, world, TENSOR)
    ]
    data_groups = [
        dist.new_group(range(first, world, TENSOR), group_desc="DATA_PARALLEL_GROUP")
        for first in range(TENSOR)
    ]
    weights = [torch.eye(WIDTH) for _ in range(3)]
    dist.barrier()
    threading.Timer(DUMP_AFTER_S, dump, [rank]).start()
    for step in range(100):
        train_step(rank, step, weights, tensor_groups[rank // TENSOR], data_groups[rank % TENSOR])
        if rank == 0:
            print(f"step {step}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
