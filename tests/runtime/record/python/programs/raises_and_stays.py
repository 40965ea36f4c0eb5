"""A rank that raises an exception, and whose exit takes long, as where a launcher kills it meanwhile."""

import atexit
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
atexit.register(time.sleep, 3600)
raise ValueError("no such batch")
