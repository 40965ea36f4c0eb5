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

# Runs in the tree's root: CMake looks for presets in the working folder.
build() {
  local preset=$1
  (
    cd "$LOCKSTEP_ROOT" || exit
    say "configuring build/$preset"
    cmake --preset "$preset"
    say "building build/$preset"
    cmake --build --preset "$preset"
  )
}
