#!/usr/bin/env python3
"""Make a wheel that carries the program: `pip install` gives the command `lockstep`.

usage: scripts/packaging/make_wheel.py PROGRAM RECORDERS VERSION FOLDER

PROGRAM is linked statically (cmake --preset wheel) and so runs on any Linux: the wheel is tagged
manylinux2014, which every pip since 2019 takes. What would not is refused: a program that needs a
library, and a wheel of more than 8 MB. RECORDERS is the folder of liblockstep_nccl*.so, which are
loaded into other programs and need glibc 2.18 there. Prints the wheel's path.
"""

import base64
import hashlib
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_BYTES = 8_000_000
RECORDERS_GLIBC = (2, 18)

START = '''"""Lockstep: verify and simulate distributed training. The command is a program of its own."""

import os
import pathlib
import platform
import signal
import sys


def main() -> None:
    """Becomes the program."""
    program = pathlib.Path(__file__).parent / "bin" / "lockstep"
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and the program would inherit that
    os.execv(program, ["lockstep", *sys.argv[1:]])


def recorder(name: str) -> str:
    """The path of a recorder: "nccl_profiler" for NCCL_PROFILER_PLUGIN, "nccl" for LD_PRELOAD."""
    library = pathlib.Path(__file__).parent / "recorders" / f"liblockstep_{name}.so"
    if not library.exists():
        raise ValueError(f"no recorder is called {name}")
    libc, version = platform.libc_ver()
    if libc == "glibc" and tuple(map(int, version.split("."))) < GLIBC:
        raise OSError(f"the recorders need glibc {GLIBC[0]}.{GLIBC[1]}; this is {version}")
    return str(library)
'''

# What the program finds beside itself (cli/input_files.h), and scripts that people run.
SHIPPED = {
    "examples": "examples",
    "scenarios": "scenarios",
    "sim/machines": "machines",
    "sim/plans": "plans",
    "runtime/record/python/lockstep_record.py": "lockstep_record.py",
    "runtime/record/python/lockstep_record": "lockstep_record",
    "runtime/record/python/lockstep_watch.py": "python/lockstep_watch.py",
    "runtime/record/python/lockstep_watch_all.py": "python/lockstep_watch_all.py",
    "verify/certificates/check_certificate.py": "check_certificate.py",
}

# Python 3.6 is that of RHEL 8, 3.8 that of Ubuntu 20.04: __init__.py keeps to what 3.6 has.
METADATA = """Metadata-Version: 2.1
Name: lockstep
Version: {version}
Summary: Finds why a distributed training job hangs, dies or computes the wrong thing
License: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.6
Description-Content-Type: text/markdown

{readme}"""

# The Debian packages whose code the program contains: their licences must come with it.
LINKED = """libc6 libgcc-s1 libarchive-dev libboost-dev libbz2-dev libcli11-dev libeigen3-dev libfmt-dev
liblzma-dev libprotobuf-dev libsimdjson-dev libsqlite3-dev libvalijson-dev libyaml-cpp-dev libzstd-dev nettle-dev
nlohmann-json3-dev zlib1g-dev""".split()

WHEEL = """Wheel-Version: 1.0
Generator: lockstep
Root-Is-Purelib: false
"""


def output_of(*command: str) -> str:
    try:
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as failed:
        sys.exit(f"make_wheel.py: error: {failed}\n  fix: are the program there, and Debian's binutils?")


def refuse_what_does_not_run_elsewhere(program: pathlib.Path) -> None:
    needed = re.findall(r"NEEDED +(\S+)", output_of("objdump", "-p", str(program)))
    if needed or "INTERP" in output_of("objdump", "-p", str(program)):
        sys.exit(f"make_wheel.py: error: {program} is not linked statically: it needs {needed}\n"
                 "  fix: build it with cmake --preset wheel")


def newest_glibc(library: pathlib.Path) -> tuple[int, ...]:
    symbols = output_of("objdump", "-T", str(library))
    return max((tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", symbols)), default=(0,))


def write_package(program: pathlib.Path, recorders: pathlib.Path, tree: pathlib.Path) -> None:
    package = tree / "lockstep"
    (package / "bin").mkdir(parents=True)
    (package / "__init__.py").write_text(START.replace("GLIBC[0]", str(RECORDERS_GLIBC[0]))
                                         .replace("GLIBC[1]", str(RECORDERS_GLIBC[1]))
                                         .replace("GLIBC", str(RECORDERS_GLIBC)))
    (package / "__main__.py").write_text("from lockstep import main\n\nmain()\n")
    shutil.copy(program, package / "bin" / "lockstep")
    output_of("strip", str(package / "bin" / "lockstep"))
    (package / "recorders").mkdir()
    for library in sorted(recorders.glob("liblockstep_nccl*.so")):
        if newest_glibc(library) > RECORDERS_GLIBC:
            sys.exit(f"make_wheel.py: error: {library} needs a glibc newer than {RECORDERS_GLIBC}")
        shutil.copy(library, package / "recorders" / library.name)
        output_of("strip", "--strip-unneeded", str(package / "recorders" / library.name))
    for source, name in SHIPPED.items():
        target = package / "share" / "lockstep" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        copy(ROOT / source, target)


def program_info(version: str, info: pathlib.Path) -> str:
    """Writes what the program's wheel says beside its files into the folder; returns its METADATA."""
    (info / "licenses").mkdir()
    for name in LINKED:
        terms = pathlib.Path("/usr/share/doc", name, "copyright")
        if terms.exists():
            shutil.copy(terms, info / "licenses" / f"{name}.txt")
        else:
            print(f"make_wheel.py: note: the wheel lacks the licence of {name}: no {terms}", file=sys.stderr)
    (info / "entry_points.txt").write_text("[console_scripts]\nlockstep = lockstep:main\n")
    return METADATA.format(version=version, readme=(ROOT / "README.md").read_text())


def write_wheel(tree: pathlib.Path, version: str, tags: list[str], folder: pathlib.Path,
                name: str = "lockstep", metadata: str = "") -> pathlib.Path:
    """The files of the tree, and what the format asks for: a digest of each (PEP 427). Without
    `metadata`: those of the program."""
    info = f"{name}-{version}.dist-info"
    (tree / info).mkdir()
    (tree / info / "METADATA").write_text(metadata or program_info(version, tree / info))
    shutil.copy(ROOT / "LICENSE", tree / info / "LICENSE")
    (tree / info / "WHEEL").write_text(WHEEL + "".join(f"Tag: py3-none-{tag}\n" for tag in tags))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-{'.'.join(tags)}.whl"
    rows = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for file in sorted(p for p in tree.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
            inside = file.relative_to(tree).as_posix()
            digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).rstrip(b"=").decode()
            rows.append(f"{inside},sha256={digest},{file.stat().st_size}\n")
            wheel.write(file, inside)
        wheel.writestr(f"{info}/RECORD", "".join(rows) + f"{info}/RECORD,,\n")
    return path


def main() -> int:
    if len(sys.argv) != 5:
        print(__doc__, file=sys.stderr)
        return 2
    program, recorders, version, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], pathlib.Path(sys.argv[4])
    refuse_what_does_not_run_elsewhere(program)
    machine = platform.machine()
    with tempfile.TemporaryDirectory() as temporary:
        tree = pathlib.Path(temporary)
        write_package(program, recorders, tree)
        wheel = write_wheel(tree, version, [f"manylinux2014_{machine}", f"manylinux_2_17_{machine}"], folder)
    size = wheel.stat().st_size
    if size > MOST_BYTES:
        wheel.unlink()
        sys.exit(f"make_wheel.py: error: {wheel} would have {size} bytes, more than {MOST_BYTES}")
    print(wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
