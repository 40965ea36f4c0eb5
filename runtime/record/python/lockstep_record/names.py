"""Names of what calls carry."""

from typing import Optional, Sequence

import torch


class Names:
    """Names of parameters, gradients and buffers, looked up by object or by memory address."""

    def __init__(self) -> None:
        self._tensors: dict[str, torch.Tensor] = {}
        self._by_id: dict[int, str] = {}

    def add_module(self, module: torch.nn.Module) -> None:
        for kind in (module.named_parameters(), module.named_buffers()):
            for name, tensor in kind:
                if id(tensor) in self._by_id:
                    continue
                unique, copies = name, 1
                while unique in self._tensors:  # another model has this name
                    copies += 1
                    unique = f"{name}#{copies}"
                self._tensors[unique] = tensor
                self._by_id[id(tensor)] = unique

    def of_parameters(self, parameters: Sequence[torch.Tensor]) -> Optional[list[str]]:
        names = [self._by_id.get(id(p)) for p in parameters]
        return None if None in names else [n for n in names if n is not None]

    def of_tensors(self, tensors: Sequence[torch.Tensor]) -> Optional[list[str]]:
        """None unless each tensor is a known tensor as a whole, or its gradient."""
        if not tensors or not self._tensors:
            return None
        name_at: dict[tuple[int, int], str] = {}
        for name, tensor in self._tensors.items():
            for known in (tensor, tensor.grad if tensor.is_leaf else None):
                if known is not None and (key := _memory(known)):
                    name_at.setdefault(key, name)
        names = []
        for tensor in tensors:
            key = _memory(tensor)
            if key is None or key not in name_at:
                return None
            names.append(name_at[key])
        return names


def _memory(tensor: torch.Tensor) -> Optional[tuple[int, int]]:
    """Address and number of elements; None for DTensors, sparse and empty tensors."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return None
    if tensor.layout != torch.strided or tensor.numel() == 0:
        return None
    return tensor.data_ptr(), tensor.numel()
