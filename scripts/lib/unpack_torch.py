"""Unpack what a C++ program needs of LibTorch's wheels.

usage: unpack_torch.py WHEELS_FOLDER TARGET [cpu | link | run]

cpu (the default), about a third of the wheel: TARGET becomes include/ (torch's headers), lib/ (the
libraries below, all side by side, since libtorch_cpu looks beside itself for what it needs) and
licenses/.

link, run: the CUDA half, laid out as pip does, since its libraries look for each other there:
TARGET becomes torch/lib/ and nvidia/. For `link` only what compiler and linker read; for `run`
every library.
"""

import pathlib
import re
import shutil
import sys
import zipfile

# Member of a wheel -> place in TARGET.
CPU_LIBRARIES = {
    "torch/lib/libtorch_cpu.so": "lib/libtorch_cpu.so",
    "torch/lib/libc10.so": "lib/libc10.so",
    "torch/lib/libgomp.so.1": "lib/libgomp.so.1",
    "nvidia/cu13/lib/libcudart.so.13": "lib/libcudart.so.13",
    "nvidia/cu13/lib/libcupti.so.13": "lib/libcupti.so.13",
}
# What must have been among the wheels, by the places in TARGET.
NEEDED = {
    "cpu": set(CPU_LIBRARIES.values()) | {"include/ATen/ATen.h"},
    "link": {
        "torch/lib/libtorch_cuda.so",
        "torch/lib/libc10_cuda.so",
        "nvidia/cu13/include/cuda_runtime_api.h",
        "nvidia/cu13/include/crt/host_defines.h",
        "nvidia/nccl/include/nccl.h",
    },
}
NEEDED["run"] = NEEDED["link"] | {"nvidia/nccl/lib/libnccl.so.2"}
LICENSES = ("LICENSE", "NOTICE", "License.txt")

# The CPU half's own libraries are not kept twice, and Python's not at all.
CUDA_LIBRARY = re.compile(r"torch/lib/lib(torch_cuda|torch_cuda_linalg|torch_nvshmem|c10_cuda|caffe2_nvrtc)\.so")
LINKED_LIBRARY = re.compile(r"torch/lib/lib(torch_cuda|c10_cuda)\.so")
CUDA_HEADER = re.compile(r"nvidia/(cu13/include/.*|nccl/include/nccl\.h)")
NVIDIA_LIBRARY = re.compile(r"nvidia/\w+/lib/[^/]+\.so(\.\d+)*")


def license_place(wheel: pathlib.Path, member: str) -> str | None:
    folder, _, name = member.rpartition("/")
    if folder.endswith(".dist-info/licenses") and name in LICENSES:
        return f"licenses/{wheel.name.split('-')[0]}/{name}"
    return None


def place_of(wheel: pathlib.Path, member: str, part: str) -> str | None:
    """Where in TARGET a wheel's member goes; None: it is left out."""
    if member.endswith("/"):
        return None
    if part == "cpu":
        if member in CPU_LIBRARIES:
            return CPU_LIBRARIES[member]
        if member.startswith("torch/include/"):
            return member[len("torch/") :]
        return license_place(wheel, member)
    kept = [CUDA_HEADER, LINKED_LIBRARY] if part == "link" else [CUDA_HEADER, CUDA_LIBRARY, NVIDIA_LIBRARY]
    if any(pattern.fullmatch(member) for pattern in kept):
        return member
    return license_place(wheel, member)


def unpack(wheel: pathlib.Path, target: pathlib.Path, part: str) -> set[str]:
    """Unpack one wheel and return the places written."""
    written = set()
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            place = place_of(wheel, member.filename, part)
            if place is None:
                continue
            path = target / place
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, open(path, "wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
            written.add(place)
    return written


def main() -> int:
    wheels, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    part = sys.argv[3] if len(sys.argv) > 3 else "cpu"
    written: set[str] = set()
    for wheel in sorted(wheels.glob("*.whl")):
        written |= unpack(wheel, target, part)
    missing = sorted(NEEDED[part] - written)
    if missing:
        print(f"the wheels in {wheels} lack {', '.join(missing)}", file=sys.stderr)
        return 1
    print(f"{len(written)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
