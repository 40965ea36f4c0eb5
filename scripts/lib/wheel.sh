# shellcheck shell=bash
# Files out of a wheel of the package index, pinned by hash, kept in the cache folder. Sourced after
# common.sh and torch.sh.

# A python with pip, which downloads wheels.
python_with_pip() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -m pip --version >/dev/null 2>&1; then printf '%s\n' "$python"; return; fi
  done
  fail "no python3 with pip, which downloads the wheel" "Run scripts/setup full, or: apt-get install python3-pip"
}

# keep_from_wheel NAME PIN FOLDER_OF... -- FILE... [-- PIP_OPTION...]
#
# Prints the folder NAME of the cache, once the FILEs are in it: taken from those folders of the wheel
# that end in one of FOLDER_OF, each FILE once. PIN is a line of pip's requirements with its hash.
# Nothing is done where that was done for the same PIN. Other processes that do the same are waited for.
keep_from_wheel() {
  local folder pin=$2 within=() files=()
  folder=$(cache_folder)/$1
  shift 2
  while [[ $1 != -- ]]; do within+=("$1"); shift; done
  shift
  while [[ $# -gt 0 && $1 != -- ]]; do files+=("$1"); shift; done
  [[ $# -eq 0 ]] || shift
  if ! wheel_is_kept "$folder" "$pin"; then
    mkdir -p "${folder%/*}" || fail "${folder%/*} cannot be made" \
      "LOCKSTEP_CACHE names another place, with 300 MB to spare."
    # One at a time for a folder; the kernel drops the lock when this process ends, however it ends.
    exec 9>"$folder.lock"
    flock -n 9 || { say "waiting for another ${0##*/} to finish"; flock 9; }
    wheel_is_kept "$folder" "$pin" || wheel_fetch "$folder" "$pin" "$@"
  fi
  printf '%s\n' "$folder"
}

# The stamp is written last.
wheel_is_kept() { [[ -e $1/lockstep-pin.txt && $(<"$1/lockstep-pin.txt") == "$2" ]]; }

# Of keep_from_wheel, whose `within` and `files` it sees.
wheel_fetch() {
  local folder=$1 pin=$2 work=$1.partial python
  shift 2
  python=$(python_with_pip)
  rm -rf "$work"
  mkdir -p "$work/wheels"
  printf '%s\n' "$pin" >"$work/pin.txt"
  say "downloading ${pin%% *}"
  if ! "$python" -m pip download --quiet --no-cache-dir --disable-pip-version-check --no-deps \
    --only-binary=:all: --require-hashes -r "$work/pin.txt" -d "$work/wheels" "$@" \
    >"$work/download.log" 2>&1; then
    cat "$work/download.log" >&2
    fail "downloading ${pin%% *} failed" \
      "Is the package index reachable, and is the file the one pinned in scripts/${0##*/}?"
  fi
  wheel_unpack "$python" "$work/wheels" "$work/kept"
  printf '%s\n' "$pin" >"$work/kept/lockstep-pin.txt"
  rm -rf "$folder"
  mv "$work/kept" "$folder"
  rm -rf "$work"
  say "it is in $folder ($(du -sh "$folder" | cut -f1))"
}

# zipfile, since unzip is not installed everywhere.
wheel_unpack() {
  "$1" - "$2" "$3" "${within[@]}" -- "${files[@]}" <<'PYTHON'
import pathlib, shutil, sys, zipfile

wheels, target = map(pathlib.Path, sys.argv[1:3])
separator = sys.argv.index("--")
folders, wanted = sys.argv[3:separator], set(sys.argv[separator + 1:])
target.mkdir()
(wheel,) = wheels.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    for member in archive.namelist():
        path = pathlib.PurePosixPath(member)
        if path.name in wanted and any(path.parent.match(folder) for folder in folders):
            with archive.open(member) as source, open(target / path.name, "wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
            wanted.discard(path.name)
if wanted:
    sys.exit(f"the wheel lacks {', '.join(sorted(wanted))}")
PYTHON
}
