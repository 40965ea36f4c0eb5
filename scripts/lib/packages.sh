# shellcheck shell=bash
# Debian packages: which are needed for what, and installing those that are missing. Sourced after
# common.sh. docs/dependencies.md says what each is for.
# shellcheck disable=SC2034  # the lists are used by those who source this

# An entry is "package", "package:command" or "package=header": the latter are also satisfied when the
# command, or the header, is there without Debian's package.
PACKAGES_CORE=(g++:g++ cmake:cmake ninja-build:ninja zlib1g-dev=zlib.h libarchive-dev=archive.h
  nettle-dev=nettle/sha2.h libcli11-dev=CLI/CLI.hpp libyaml-cpp-dev=yaml-cpp/yaml.h
  nlohmann-json3-dev=nlohmann/json.hpp libsimdjson-dev=simdjson.h
  libprotobuf-dev=google/protobuf/message_lite.h libvalijson-dev=valijson/validator.hpp
  libsqlite3-dev=sqlite3.h
  libfmt-dev=fmt/format.h libboost-dev=boost/graph/adjacency_list.hpp
  libeigen3-dev=eigen3/Eigen/Core libgtest-dev=gtest/gtest.h libgmock-dev=gmock/gmock.h
  libbenchmark-dev=benchmark/benchmark.h
  python3:python3) # runs the checker of certificates
# Only make builds faster: without them, a warning.
PACKAGES_FASTER=(ccache:ccache mold:mold)
# What the trainer needs beside LibTorch: for what of it is built without, and for all.
PACKAGES_DATA=(libturbojpeg0-dev=turbojpeg.h libpng-dev=png.h libutf8proc-dev=utf8proc.h)
PACKAGES_FULL=("${PACKAGES_DATA[@]}" libgloo-dev=gloo/context.h)
# ca-certificates and python3-pip download the wheels of LibTorch, binutils strips it.
PACKAGES_FETCH=(ca-certificates python3:python3 python3-pip:pip3 binutils:strip)
# What some of the tests start; they say that they were skipped where it is missing.
PACKAGES_FULL_TESTS=(mpich:mpirun iproute2:ip zsh:zsh fish:fish)
PACKAGES_TOOLS=(clang-format:clang-format shellcheck:shellcheck)
PACKAGES_TIDY=(clang-tidy:clang-tidy)
# The Debian package (CPack asks `file` what a program is) and the wheel; --check installs them in a
# system of its own.
# The wheel's program is linked statically.
PACKAGES_PACKAGE=(help2man:help2man dpkg-dev:dpkg-shlibdeps file:file git:git python3:python3 ca-certificates
  binutils:objdump libzstd-dev liblzma-dev libbz2-dev)
PACKAGES_PACKAGE_CHECK=(debootstrap:debootstrap)
# Make and fill the virtual environment of scripts/setup-python-torch.
PACKAGES_PYTHON_TORCH=(python3:python3 python3-venv ca-certificates)
# In which a test opens report pages, and says that it was skipped without it. It is larger than all
# that the core needs together, so that nobody gets it unasked.
PACKAGES_BROWSER=(chromium:chromium)
# In which tests read timelines by Perfetto's trace processor (scripts/fetch-perfetto).
PACKAGES_TIMELINE=(nodejs:node python3:python3 python3-pip:pip3 ca-certificates)
# libFuzzer and the sanitizers of the clang that `clang` is.
PACKAGES_FUZZ=(clang:clang++ libclang-rt-14-dev)

# Does the compiler find the header $1, or a folder of CMAKE_PREFIX_PATH have it?
has_header() {
  local folder folders=()
  IFS=: read -ra folders <<<"${CMAKE_PREFIX_PATH:-}"
  for folder in "${folders[@]}"; do [[ ! -e $folder/include/$1 ]] || return 0; done
  "${CXX:-c++}" -x c++ -fsyntax-only - <<<"#if !__has_include(<$1>)
#error
#endif" 2>/dev/null
}

# Prints those of the arguments' packages that are not there.
missing_packages() {
  local entry package needed status
  for entry in "$@"; do
    package=${entry%%[:=]*}
    needed=${entry#"$package"}
    case $needed in
      :*) ! command -v "${needed#:}" >/dev/null || continue ;;
    esac
    status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [[ $status != installed ]] || continue
    case $needed in
      =*) ! has_header "${needed#=}" || continue ;;
    esac
    printf '%s\n' "$package"
  done
}

# Runs a command as root: directly, or by sudo (which may ask for a password on a terminal).
as_root() {
  if [[ $(id -u) -eq 0 ]]; then "$@"; else sudo "$@"; fi
}

can_be_root() { [[ $(id -u) -eq 0 ]] || command -v sudo >/dev/null; }

# ensure_packages required|optional NAME...: installs what is missing of NAME..., if anything.
ensure_packages() {
  local kind=$1 missing
  shift
  mapfile -t missing < <(missing_packages "$@")
  [[ ${#missing[@]} -gt 0 ]] || return 0
  if ! command -v apt-get >/dev/null; then
    say "warning: this is not Debian; of what its packages hold, this seems to be missing: ${missing[*]}"
    return
  fi
  if ! can_be_root; then
    if [[ $kind == optional ]]; then
      say "warning: going on without ${missing[*]}"
      return
    fi
    fail "some Debian packages are missing, and installing them needs root or sudo" \
      "As root: apt-get install --no-install-recommends ${missing[*]}"
  fi
  say "installing Debian packages: ${missing[*]}"
  apt_install "${missing[@]}" && return
  [[ $kind == optional ]] || fail "apt-get could not install: ${missing[*]}" "Its messages are above."
  say "warning: going on without ${missing[*]}"
}

# Installs packages without questions; apt's messages are shown only when it fails.
apt_install() {
  local log status=0
  log=$(mktemp)
  as_root apt-get -qq update </dev/null >"$log" 2>&1 || true # the lists that are there may do
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends "$@" \
    </dev/null >>"$log" 2>&1 || status=$?
  [[ $status -eq 0 ]] || tail -n 30 "$log" >&2
  rm -f "$log"
  return "$status"
}
