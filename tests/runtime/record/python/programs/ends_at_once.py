"""A job that ends right after its last call, while the transport's threads are late.

They run only when nothing else does, and so often let go of a call's tensors when Python is ending.
Without a recorder about one process in five dies of SIGABRT here.
"""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
for thread in map(int, os.listdir("/proc/self/task")):
    with open(f"/proc/self/task/{thread}/comm", encoding="utf8") as name:
        if name.read().startswith("pt_gloo_runloop"):
            os.sched_setaffinity(thread, os.sched_getaffinity(0))
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
for _ in range(3):
    dist.all_reduce(torch.ones(1))
