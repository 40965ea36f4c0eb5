#!/usr/bin/env python3
"""Make a wheel of liblockstep_record.so for one version of torch, beside the wheel of `lockstep`.

usage: scripts/packaging/make_recorder_wheel.py LIBRARY VERSION FOLDER

It puts the library where `lockstep record` looks for it: lockstep/lib/torch-2.15.0/ of the same
site-packages. The version of torch is read from the library, and is part of the wheel's name, so that
recorders for several can be installed together. It is not a manylinux wheel: the library needs what
the machine that built it has, which the wheel's description lists. Prints the wheel's path.
"""

import pathlib
import platform
import re
import shutil
import sys
import tempfile

import make_wheel

METADATA = """Metadata-Version: 2.1
Name: lockstep-recorder-torch-{dashed}
Version: {version}
Summary: Lockstep's recorder for PyTorch {torch}
License: Apache-2.0
License-File: LICENSE
Requires-Dist: lockstep
Requires-Python: >=3.8

`lockstep record -- torchrun train.py` finds it, for jobs with PyTorch {torch}.

Needs glibc {glibc} or later, and these libraries of the system: {libraries}.
"""


def torch_of(library: pathlib.Path) -> str:
    found = re.search(rb"LOCKSTEP_RECORDS_TORCH=([0-9.]+)", library.read_bytes())
    if found is None:
        sys.exit(f"make_recorder_wheel.py: error: {library} is not a recorder\n"
                 "  fix: build it with scripts/build-recorder")
    return found.group(1).decode()


def main() -> int:
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    library, version, folder = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    torch = torch_of(library)
    needed = re.findall(r"NEEDED +(\S+)", make_wheel.output_of("objdump", "-p", str(library)))
    own = ("libtorch", "libc10", "libc.so", "libm.so", "libgcc", "libstdc++")
    metadata = METADATA.format(
        torch=torch, dashed=torch.replace(".", "-"), version=version,
        glibc=".".join(map(str, make_wheel.newest_glibc(library))),
        libraries=", ".join(n for n in needed if not n.startswith(own)) or "none")
    with tempfile.TemporaryDirectory() as temporary:
        tree = pathlib.Path(temporary)
        target = tree / "lockstep" / "lib" / f"torch-{torch}"
        target.mkdir(parents=True)
        shutil.copy(library, target / "liblockstep_record.so")
        make_wheel.output_of("strip", "--strip-unneeded", str(target / "liblockstep_record.so"))
        print(make_wheel.write_wheel(tree, version, [f"linux_{platform.machine()}"], folder,
                                     f"lockstep_recorder_torch_{torch.replace('.', '_')}", metadata))
    return 0


if __name__ == "__main__":
    sys.exit(main())
