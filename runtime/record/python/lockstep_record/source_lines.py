"""Where in the program a call comes from."""

import os
import sys
from typing import Any, Optional

import torch


_OWN = os.path.dirname(os.path.abspath(__file__))
_OWN_FILES = (_OWN + os.sep, _OWN + ".py")  # this package, and the command beside it
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_JOIN = os.path.join("torch", "distributed", "algorithms", "join.py")
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep


def source_location(root: str) -> Optional[str]:
    """`train.py:120`: the source location in the program that led to this call.

    The innermost frame in the folder `root`, else the innermost that is neither in this package,
    in torch nor in the standard library; None if the call comes from a C++ thread.
    """
    frame: Any = sys._getframe(1)
    outside: Optional[str] = None
    while frame is not None:
        file = os.path.abspath(frame.f_code.co_filename)
        if file.startswith(root + os.sep) and not file.startswith(_OWN_FILES):
            return f"{os.path.relpath(file, root)}:{frame.f_lineno}"
        library = file.startswith((*_OWN_FILES, _TORCH, _STDLIB)) or not os.path.exists(file)
        # Remember the innermost foreign frame: the program may lie outside of `root`, or in
        # site-packages.
        if outside is None and (not library or f"{os.sep}site-packages{os.sep}" in file
                                and not file.startswith(_TORCH)):
            outside = f"{os.path.basename(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return outside


def made_by_join() -> bool:
    """Whether PyTorch's Join makes this call: to learn who has batches left, and who is the last."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith(_JOIN):
            return True
        frame = frame.f_back
    return False
