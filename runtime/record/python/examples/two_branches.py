"""A small model of images and text, and batches for it; the other files here train it.

A batch is {"text": [B, 16] token ids, "label": [B]}, and "image": [B, 3, 16, 16] if it has images.
"""

from typing import Optional

import torch
from torch import Tensor, nn

Batch = dict[str, Tensor]


class ImageBranch(nn.Module):
    """[B, 3, 16, 16] -> [B, width]"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, kernel_size=4, stride=4)
        self.projection = nn.Linear(8 * 4 * 4, width)

    def forward(self, image: Tensor) -> Tensor:
        return self.projection(torch.relu(self.convolution(image)).flatten(1))


class TextBranch(nn.Module):
    """[B, 16] -> [B, width]"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.token = nn.Embedding(100, width)
        self.projection = nn.Linear(width, width)

    def forward(self, text: Tensor) -> Tensor:
        return torch.relu(self.projection(self.token(text).mean(dim=1)))


class TwoBranches(nn.Module):
    """The text's features, plus the image's where there is one; then a classifier of 10 classes."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.image = ImageBranch(width)
        self.text = TextBranch(width)
        self.head = nn.Linear(width, 10)

    def forward(self, text: Tensor, image: Optional[Tensor] = None, weight: float = 1.0) -> Tensor:
        features = self.text(text)
        if image is not None:
            features = features + weight * self.image(image)
        return self.head(features)


def make_batch(with_image: bool, size: int = 4) -> Batch:
    batch = {"text": torch.randint(0, 100, (size, 16)), "label": torch.randint(0, 10, (size,))}
    if with_image:
        batch["image"] = torch.randn(size, 3, 16, 16)
    return batch


# What runtime/record/python/lockstep_record.py looks at: the kinds of batches that a rank may meet.
CONDITIONS = {"image+text": lambda: make_batch(True), "text": lambda: make_batch(False)}
HAS = {"image+text": ["image", "text"], "text": ["text"]}
