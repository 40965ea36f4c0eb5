"""Prints what the host takes for a small all-reduce that it does not wait for: "us MICROSECONDS".

usage: calls.py {cuda,cpu}
"""

import os
import sys
import time

import torch
import torch.distributed as dist

BLOCKS = 40
BLOCK = 50  # calls: few enough that the host never waits for room in a queue


def main() -> None:
    kind = sys.argv[1]
    device = torch.device(kind, int(os.environ["LOCAL_RANK"])) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    values = [torch.ones(1, device=device) for _ in range(BLOCK)]
    best = float("inf")
    for _ in range(BLOCKS):
        dist.barrier()
        began = time.perf_counter()
        works = [dist.all_reduce(value, async_op=True) for value in values]
        best = min(best, (time.perf_counter() - began) / BLOCK)
        for work in works:
            work.wait()
        if kind == "cuda":
            torch.cuda.synchronize()
    if dist.get_rank() == 0:
        print(f"us {1e6 * best:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
