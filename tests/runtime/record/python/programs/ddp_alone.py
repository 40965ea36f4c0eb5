"""DDP in a program that knows nothing of Lockstep. usage: ddp_alone.py [skip: rank 1 leaves a call out]"""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
pair = dist.new_group([0, 1])
total = torch.ones(4)
if sys.argv[1:] != ["skip"] or rank == 0:
    dist.all_reduce(total, group=pair)
dist.all_gather_object([None, None], {"rank": rank})
if rank == 0:
    dist.send(total, 1)
else:
    dist.recv(total, 0)
dist.barrier()
