# shellcheck shell=bash
# Which Torch is built against, and where it is. cmake/LockstepTorch.cmake computes the same folder
# in the same way; keep the two alike. Sourced after common.sh.

LOCKSTEP_TORCH_DEFAULT_VERSION=2.15.0

torch_version() { printf '%s\n' "${LOCKSTEP_TORCH_VERSION:-$LOCKSTEP_TORCH_DEFAULT_VERSION}"; }

cache_folder() {
  if [[ -z ${LOCKSTEP_CACHE:-} && -z ${XDG_CACHE_HOME:-} && -z ${HOME:-} ]]; then
    fail "neither LOCKSTEP_CACHE nor HOME is set" "Set LOCKSTEP_CACHE to a folder with 1.5 GB to spare."
  fi
  printf '%s\n' "${LOCKSTEP_CACHE:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/lockstep}"
}

# The folder that holds include/ and lib/.
torch_folder() {
  local cache
  if [[ -n ${LOCKSTEP_TORCH_DIR:-} ]]; then
    printf '%s\n' "$LOCKSTEP_TORCH_DIR"
  else
    cache=$(cache_folder) || return
    printf '%s/torch-%s\n' "$cache" "$(torch_version)"
  fi
}

# The versions that scripts/torch/ pins, in one line.
torch_known_versions() {
  local file versions=()
  for file in "$LOCKSTEP_ROOT"/scripts/torch/*.txt; do versions+=("$(basename "$file" .txt)"); done
  printf '%s\n' "${versions[*]}"
}

# Fails with the reason when the Torch in folder $1 cannot be built against or cannot be loaded.
torch_verify() {
  local folder=$1 file missing
  for file in include/ATen/ATen.h include/torch/csrc/api/include/torch/torch.h \
    include/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp lib/libtorch_cpu.so lib/libc10.so; do
    [[ -e $folder/$file ]] || fail "no usable LibTorch in $folder: $file is missing" \
      "LOCKSTEP_TORCH_DIR names the folder that holds include/ and lib/, for instance" \
      ".../site-packages/torch. Unset it to have a known version fetched."
  done
  missing=$(LC_ALL=C ldd "$folder/lib/libtorch_cpu.so" | awk '/not found/ { print $1 }' | sort -u | xargs)
  [[ -z $missing ]] || fail "$folder/lib/libtorch_cpu.so cannot be loaded: $missing not found" \
    "Put these libraries beside it, or unset LOCKSTEP_TORCH_DIR to have a whole one fetched."
}

# The version that the headers in folder $1 declare.
torch_header_version() {
  local header
  for header in torch/headeronly/version.h torch/csrc/api/include/torch/version.h; do
    [[ -e $1/include/$header ]] || continue
    awk '/#define TORCH_VERSION_(MAJOR|MINOR|PATCH) / { printf "%s%s", dot, $3; dot = "." }
         END { exit dot == "" }' "$1/include/$header" && return 0
  done
  printf 'unknown'
}
