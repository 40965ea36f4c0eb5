# shellcheck shell=bash
# What every script shares: where the tree is, and how to speak. Sourced, never run.

# A failure inside $(...) ends the script too.
shopt -s inherit_errexit

# shellcheck disable=SC2034  # used by those who source this
LOCKSTEP_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"

# One line of progress. To stderr, so that a script's output stays its result.
say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# Says what is wrong (first argument) and what to do (further arguments, one line each); ends with 2.
fail() {
  printf '%s: error: %s\n' "${0##*/}" "$1" >&2
  shift
  local line
  for line in "$@"; do printf '  %s\n' "$line" >&2; done
  exit 2
}

# Prints the comment that opens a script (all but the #! line), which is its help.
print_help() { awk 'NR == 1 { next } !/^#/ { exit } { sub(/^# ?/, ""); print }' "$1"; }
