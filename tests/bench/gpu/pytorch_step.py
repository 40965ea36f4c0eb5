"""Trains what `lockstep-worker` trains in against_pytorch.py, in Python's torch: ResNet-50 and BERT-base,
contrastive and masked-word loss, bfloat16 autocast, AdamW, DDP over NCCL.

usage: pytorch_step.py RESULT.json STEPS BATCH TOKENS EMBED
environment: as torchrun sets it

Prints and writes: losses, step_ms (each with the copy of its batch to the device and of its loss to the
host), peak_bytes, reserved_bytes, parameters.
"""

import json
import math
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, HEADS, FEED_FORWARD = 768, 12, 12, 3072
VOCABULARY, POSITIONS = 40, 512  # words: about those of the data set "shapes"
DROPOUT = 0.1
MASKED_SHARE, MASK, PAD = 0.15, 3, 0
KEPT_BATCHES = 4


class Bottleneck(nn.Module):
    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(width_in, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        self.downsample = None
        if stride != 1 or width_in != out:
            self.downsample = nn.Sequential(nn.Conv2d(width_in, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        around = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = F.relu(self.bn2(self.conv2(x)), inplace=True)
        return F.relu(self.bn3(self.conv3(x)) + around, inplace=True)


class ResNet50(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                                  nn.MaxPool2d(3, 2, 1))
        blocks, width_in = [], 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for i in range(count):
                blocks.append(Bottleneck(width_in, width, stride if i == 0 else 1))
                width_in = 4 * width
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(self.stem(x)).mean((2, 3))


class BertLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.attended = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, FEED_FORWARD), nn.Linear(FEED_FORWARD, WIDTH)
        self.norm1, self.norm2 = (nn.LayerNorm(WIDTH, eps=1e-12) for _ in range(2))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        heads = [f(x).unflatten(2, (HEADS, -1)).transpose(1, 2) for f in (self.query, self.key, self.value)]
        seen = F.scaled_dot_product_attention(*heads, attn_mask=mask, dropout_p=DROPOUT if self.training else 0.0)
        x = self.norm1(x + self.dropout(self.attended(seen.transpose(1, 2).flatten(2))))
        return self.norm2(x + self.dropout(self.down(F.gelu(self.up(x)))))


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.types, self.norm = nn.Embedding(2, WIDTH), nn.LayerNorm(WIDTH, eps=1e-12)
        self.dropout = nn.Dropout(DROPOUT)
        self.layers = nn.ModuleList(BertLayer() for _ in range(LAYERS))
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0, 0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.size(1), device=tokens.device)
        x = self.dropout(self.norm(self.words(tokens) + self.types(torch.zeros_like(tokens)) + self.places(places)))
        mask = (tokens != PAD)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        return x


class Contrastive(nn.Module):
    """As runtime/models/contrastive.cc."""

    def __init__(self, embed: int) -> None:
        super().__init__()
        self.logit_scale = nn.Parameter(torch.full((1,), math.log(1 / 0.07)))
        self.image, self.image_proj = ResNet50(), nn.Linear(2048, embed, bias=False)
        self.text, self.text_proj = Bert(), nn.Linear(WIDTH, embed, bias=False)
        self.text_head = nn.Linear(embed, VOCABULARY)

    def forward(self, images: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        hidden = torch.rand(tokens.shape).to(tokens.device) < MASKED_SHARE
        seen = torch.where(hidden, MASK, tokens)
        projected = self.text_proj(self.text(seen))
        rows = (seen != tokens).flatten().nonzero().squeeze(1)
        words = F.cross_entropy(self.text_head(projected.flatten(0, 1)[rows]), tokens.flatten()[rows])
        kept = (tokens != PAD).unsqueeze(2).to(projected.dtype)
        sentences = F.normalize((projected * kept).sum(1) / kept.sum(1).clamp_min(1), dim=-1)
        pictures = F.normalize(self.image_proj(self.image(images)), dim=-1)
        logits = self.logit_scale.exp() * pictures @ sentences.t()
        right = torch.arange(len(images), device=images.device)
        return words + (F.cross_entropy(logits, right) + F.cross_entropy(logits.t(), right)) / 2


def main() -> None:
    steps, batch, length, embed = map(int, sys.argv[2:])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(1)
    model = DistributedDataParallel(Contrastive(embed).to(device), device_ids=[device.index])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    batches = [(torch.randn(batch, 3, 224, 224), torch.randint(4, VOCABULARY, (batch, length)))
               for _ in range(KEPT_BATCHES)]
    step_ms, losses = [], []
    for step in range(steps):
        began = time.perf_counter()
        images, tokens = (tensor.to(device) for tensor in batches[step % KEPT_BATCHES])
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(images, tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        step_ms.append(1e3 * (time.perf_counter() - began))
    result = {"losses": losses, "step_ms": step_ms, "peak_bytes": torch.cuda.max_memory_allocated(device),
              "reserved_bytes": torch.cuda.max_memory_reserved(device),
              "parameters": sum(parameter.numel() for parameter in model.parameters())}
    with open(sys.argv[1], "w") as file:
        json.dump(result, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
