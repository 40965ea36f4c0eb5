"""Prints the constants of fusion_test.cc: one fusion layer, computed by PyTorch's own modules.

usage: python3 make_fusion_reference.py        (needs torch; made with 2.15.0)

Weights and inputs are sin(0.37 i + offset) over the flattened tensor, scaled, so that the test
makes the same ones without a random generator.
"""

import torch

WIDTH, HEADS, FEED_FORWARD, ITEMS, REGIONS, TOKENS = 16, 8, 24, 2, 3, 5


def wave(shape, offset, scale):
    count = torch.Size(shape).numel()
    values = torch.sin(0.37 * torch.arange(count, dtype=torch.float64) + offset) * scale
    return values.float().reshape(shape)


def show(name, tensor):
    numbers = ", ".join(f"{value:.7g}" for value in tensor.flatten().tolist())
    print(f"{name}: {numbers}")


attention = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
norm1, norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
linear1 = torch.nn.Linear(WIDTH, FEED_FORWARD)
linear2 = torch.nn.Linear(FEED_FORWARD, WIDTH)
with torch.no_grad():
    for offset, parameter in enumerate([
            attention.in_proj_weight, attention.in_proj_bias, attention.out_proj.weight,
            attention.out_proj.bias, norm1.weight, norm1.bias, norm2.weight, norm2.bias,
            linear1.weight, linear1.bias, linear2.weight, linear2.bias]):
        parameter.copy_(wave(parameter.shape, offset, 0.1))

image = wave((ITEMS, REGIONS, WIDTH), 20, 1.0).requires_grad_()
text = wave((ITEMS, TOKENS, WIDTH), 21, 1.0).requires_grad_()
mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
seen, _ = attention(image, text, text, key_padding_mask=mask == 0)
x = norm1(image + seen)
x = norm2(x + linear2(torch.nn.functional.gelu(linear1(x))))
show("attention, item 1, region 0", seen[1, 0])
show("layer, item 0, region 2", x[0, 2])
(x * wave(x.shape, 22, 1.0)).sum().backward()
show("gradient of the text, item 1, token 1", text.grad[1, 1])
show("gradient of the image, item 0, region 0", image.grad[0, 0])
