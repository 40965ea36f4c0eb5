# shellcheck shell=bash
# Configure and build a CMake preset with what it needs installed. Sourced after common.sh.

# Installs what preset $1 lacks, and points CMake to the Torch that was found or fetched.
prepare() {
  if [[ $1 == full ]]; then
    "$LOCKSTEP_ROOT/scripts/setup" full
    LOCKSTEP_TORCH_DIR=$("$LOCKSTEP_ROOT/scripts/fetch-torch")
    export LOCKSTEP_TORCH_DIR
  else
    "$LOCKSTEP_ROOT/scripts/setup" core
  fi
}

# build PRESET [TARGET...]: everything, or the targets named.
build() {
  local preset=$1 targets=()
  shift
  [[ $# -eq 0 ]] || targets=(--target "$@")
  (
    cd "$LOCKSTEP_ROOT" || exit # where CMake looks for the presets
    say "configuring build/$preset"
    cmake --preset "$preset"
    say "building build/$preset"
    cmake --build --preset "$preset" "${targets[@]}"
  )
}
