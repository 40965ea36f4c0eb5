# shellcheck shell=bash
# Configure and build a CMake preset with what it needs installed. Sourced after common.sh.

# Installs what preset $1 lacks, and points CMake to the Torch that was found or fetched. $2, for
# full-cuda: "link" where what is built will not run here; else "run". Where $3 is "anyway", what
# cannot be installed is said, and may be there by other means.
prepare() {
  if [[ $1 == full || $1 == full-cuda ]]; then
    "$LOCKSTEP_ROOT/scripts/setup" full ${3:+"$3"}
    [[ $1 == full ]] || "$LOCKSTEP_ROOT/scripts/fetch-torch" --cuda "${2:-run}" >/dev/null
    LOCKSTEP_TORCH_DIR=$("$LOCKSTEP_ROOT/scripts/fetch-torch")
    export LOCKSTEP_TORCH_DIR
  elif [[ $1 == asan || $1 == tsan ]]; then
    "$LOCKSTEP_ROOT/scripts/setup" plain
  else
    "$LOCKSTEP_ROOT/scripts/setup" core
  fi
}

# build PRESET [TARGET...] [-- CMAKE_ARGUMENT...]: everything, or the targets named. With
# LOCKSTEP_WERROR=ON in the environment, as in CI, warnings are errors.
build() {
  local preset=$1 targets=()
  shift
  while [[ $# -gt 0 && $1 != -- ]]; do targets+=("$1"); shift; done
  [[ $# -eq 0 ]] || shift
  [[ ${#targets[@]} -eq 0 ]] || targets=(--target "${targets[@]}")
  (
    cd "$LOCKSTEP_ROOT" || exit # where CMake looks for the presets
    say "configuring build/$preset"
    cmake --preset "$preset" ${LOCKSTEP_WERROR:+"-DLOCKSTEP_WERROR=$LOCKSTEP_WERROR"} "$@"
    say "building build/$preset"
    cmake --build --preset "$preset" "${targets[@]}"
  )
}
