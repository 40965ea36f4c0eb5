"""Unpack what a C++ program needs of LibTorch's wheels: about a third of their size.

usage: unpack_torch.py WHEELS_FOLDER TARGET

TARGET becomes: include/ (torch's headers), lib/ (the libraries below, all side by side, since
libtorch_cpu looks beside itself for what it needs) and licenses/.
"""

import pathlib
import shutil
import sys
import zipfile

# Member of a wheel -> place in TARGET.
LIBRARIES = {
    "torch/lib/libtorch_cpu.so": "lib/libtorch_cpu.so",
    "torch/lib/libc10.so": "lib/libc10.so",
    "torch/lib/libgomp.so.1": "lib/libgomp.so.1",
    "nvidia/cu13/lib/libcudart.so.13": "lib/libcudart.so.13",
    "nvidia/cu13/lib/libcupti.so.13": "lib/libcupti.so.13",
}
LICENSES = ("LICENSE", "NOTICE", "License.txt")


def place_of(wheel: pathlib.Path, member: str) -> str | None:
    """Where in TARGET a wheel's member goes; None: it is left out."""
    if member.endswith("/"):
        return None
    if member in LIBRARIES:
        return LIBRARIES[member]
    if member.startswith("torch/include/"):
        return member[len("torch/") :]
    folder, _, name = member.rpartition("/")
    if folder.endswith(".dist-info/licenses") and name in LICENSES:
        return f"licenses/{wheel.name.split('-')[0]}/{name}"
    return None


def unpack(wheel: pathlib.Path, target: pathlib.Path) -> set[str]:
    """Unpack one wheel and return the places written."""
    written = set()
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            place = place_of(wheel, member.filename)
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
    written: set[str] = set()
    for wheel in sorted(wheels.glob("*.whl")):
        written |= unpack(wheel, target)
    missing = sorted(set(LIBRARIES.values()) - written)
    if missing or not any(place.startswith("include/ATen/") for place in written):
        print(f"the wheels in {wheels} lack {', '.join(missing) or 'the headers'}", file=sys.stderr)
        return 1
    print(f"{len(written)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
