"""DDP, whose values are recorded by lockstep_watch. usage: watched.py [rate | start | samples]

rate: rank 1 has another learning rate. start: rank 1 changes a parameter before the first step.
samples: no DistributedSampler, so that all ranks read the same.
"""

import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from lockstep_watch import watch

variant = "".join(sys.argv[1:])
dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(48, 8), torch.randn(48, 4))
sampler = None if variant == "samples" else DistributedSampler(data, shuffle=False)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)))
odd = dist.get_rank() == 1
if variant == "start" and odd:
    with torch.no_grad():
        model.module[2].bias += 1
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3 if variant == "rate" and odd else 1e-3)
watch(model, optimizer, loader)
for inputs, targets in loader:
    torch.nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
