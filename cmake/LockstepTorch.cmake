# lockstep::torch: LibTorch's CPU half (libtorch_cpu + libc10, Gloo inside) as one small target.
#
# find_package(Torch) is not used: it enables CUDA, asks for nvcc and for a GPU architecture, and
# links libtorch_cuda. What is needed here is a folder with include/ and lib/:
#
#   LOCKSTEP_TORCH_DIR      that folder: what `scripts/fetch-torch` made, or an installed torch
#                           (.../site-packages/torch)
#   LOCKSTEP_TORCH_VERSION  else the version to take from the cache folder
#                           ${LOCKSTEP_CACHE:-${XDG_CACHE_HOME:-~/.cache}/lockstep}/torch-<version>
#
# The environment goes before -D options, and both before what this build folder used last.
#
# scripts/lib/torch.sh computes the same folder in the same way; keep the two alike.
#
# lockstep_torch_pch(TARGET) precompiles the heavy headers for TARGET.

include_guard(GLOBAL)

# The version that is fetched and tested by default.
set(_lockstep_torch_default_version 2.15.0)

# The folder in which scripts/fetch-torch keeps `version`.
function(_lockstep_torch_cached version out)
  if(NOT "$ENV{LOCKSTEP_CACHE}" STREQUAL "")
    set(cache $ENV{LOCKSTEP_CACHE})
  elseif(NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
    set(cache $ENV{XDG_CACHE_HOME}/lockstep)
  else()
    set(cache $ENV{HOME}/.cache/lockstep)
  endif()
  set(${out} ${cache}/torch-${version} PARENT_SCOPE)
endfunction()

# The folder of the Torch to build against: environment, options, the last one, the default.
function(_lockstep_torch_choose out)
  if(NOT "$ENV{LOCKSTEP_TORCH_DIR}" STREQUAL "")
    set(folder $ENV{LOCKSTEP_TORCH_DIR})
  elseif(NOT "$ENV{LOCKSTEP_TORCH_VERSION}" STREQUAL "")
    _lockstep_torch_cached($ENV{LOCKSTEP_TORCH_VERSION} folder)
  elseif(LOCKSTEP_TORCH_DIR)
    set(folder ${LOCKSTEP_TORCH_DIR})
  elseif(LOCKSTEP_TORCH_VERSION)
    _lockstep_torch_cached(${LOCKSTEP_TORCH_VERSION} folder)
  elseif(LOCKSTEP_TORCH_LAST_DIR)
    set(folder ${LOCKSTEP_TORCH_LAST_DIR})
  else()
    _lockstep_torch_cached(${_lockstep_torch_default_version} folder)
  endif()
  file(REAL_PATH "${folder}" folder EXPAND_TILDE)
  set(${out} ${folder} PARENT_SCOPE)
endfunction()

# Ends the configuration with what to do when `folder` is not a Torch that can be built against.
function(_lockstep_torch_require folder)
  foreach(file IN ITEMS include/ATen/ATen.h include/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp
                        include/torch/csrc/api/include/torch/torch.h
                        lib/libtorch_cpu.so lib/libc10.so)
    if(NOT EXISTS "${folder}/${file}")
      message(FATAL_ERROR
        "No LibTorch in ${folder} (${file} is missing).\n"
        "  fetch it:              scripts/setup full\n"
        "  or name one you have:  LOCKSTEP_TORCH_DIR=/path/to/site-packages/torch\n"
        "  or do without:         cmake --preset core")
    endif()
  endforeach()
  find_path(LOCKSTEP_GLOO_INCLUDE_DIR gloo/context.h)
  mark_as_advanced(LOCKSTEP_GLOO_INCLUDE_DIR)
  if(NOT LOCKSTEP_GLOO_INCLUDE_DIR)
    message(FATAL_ERROR
      "The headers of Gloo are missing (gloo/context.h).\n"
      "  install them:  scripts/setup full   (Debian package libgloo-dev)")
  endif()
endfunction()

# Reads TORCH_VERSION_MAJOR.MINOR.PATCH from the headers.
function(_lockstep_torch_version folder out)
  foreach(header IN ITEMS torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS ${folder}/include/${header})
      file(STRINGS ${folder}/include/${header} lines REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      list(LENGTH lines count)
      if(count EQUAL 3)
        list(TRANSFORM lines REPLACE ".* ([0-9]+).*" "\\1")
        list(JOIN lines "." version)
        set(${out} ${version} PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
  set(${out} "of an unknown version" PARENT_SCOPE)
endfunction()

_lockstep_torch_choose(LOCKSTEP_TORCH_FOLDER)
_lockstep_torch_require("${LOCKSTEP_TORCH_FOLDER}")
set(LOCKSTEP_TORCH_LAST_DIR ${LOCKSTEP_TORCH_FOLDER} CACHE INTERNAL
  "The Torch of the last configuration, so that a later one without the variables keeps it")
_lockstep_torch_version("${LOCKSTEP_TORCH_FOLDER}" LOCKSTEP_TORCH_FOUND_VERSION)
message(STATUS "Lockstep: LibTorch ${LOCKSTEP_TORCH_FOUND_VERSION} in ${LOCKSTEP_TORCH_FOLDER}")

find_package(Threads REQUIRED)

add_library(lockstep_torch INTERFACE)
add_library(lockstep::torch ALIAS lockstep_torch)
# SYSTEM: their headers are not held to our warnings.
target_include_directories(lockstep_torch SYSTEM INTERFACE
  ${LOCKSTEP_TORCH_FOLDER}/include
  ${LOCKSTEP_TORCH_FOLDER}/include/torch/csrc/api/include
  ${LOCKSTEP_GLOO_INCLUDE_DIR})
# ProcessGroupGloo.hpp is empty without the define; the wheels use the new string ABI.
target_compile_definitions(lockstep_torch INTERFACE USE_C10D_GLOO _GLIBCXX_USE_CXX11_ABI=1)
target_link_libraries(lockstep_torch INTERFACE
  ${LOCKSTEP_TORCH_FOLDER}/lib/libtorch_cpu.so
  ${LOCKSTEP_TORCH_FOLDER}/lib/libc10.so
  Threads::Threads)
target_link_options(lockstep_torch INTERFACE
  # libtorch_cpu refers to CUDA's runtime; the loader finds it beside libtorch_cpu, the linker
  # need not look.
  LINKER:--unresolved-symbols=ignore-in-shared-libs
  # Operators register themselves when the library loads: keep it even if nothing names it.
  LINKER:--no-as-needed
  # The program runs from the build folder and after `cmake --install` without LD_LIBRARY_PATH.
  LINKER:-rpath,${LOCKSTEP_TORCH_FOLDER}/lib)

option(LOCKSTEP_TORCH_PCH "Precompile Torch's headers (LOCKSTEP_RUNTIME only)" ON)

# A compiler that reads Torch takes up to 1.5 GB: as many at a time as the memory carries.
cmake_host_system_information(RESULT _lockstep_memory_mb QUERY TOTAL_PHYSICAL_MEMORY)
math(EXPR _lockstep_torch_jobs "${_lockstep_memory_mb} / 2048")
if(_lockstep_torch_jobs LESS 1)
  set(_lockstep_torch_jobs 1)
endif()
set_property(GLOBAL APPEND PROPERTY JOB_POOLS lockstep_torch=${_lockstep_torch_jobs})

# lockstep_torch_pch(TARGET): precompiles what nearly every file of the runtime includes. It costs
# one compilation of about 40 s and 0.8 GB in the build folder; each file of TARGET then compiles
# in 13 s instead of 27 s.
# lockstep_torch_pch(TARGET REUSE LIBRARY): takes the header that LIBRARY precompiled. Both must be
# compiled alike: the same optimisation and sanitizers; TARGET becomes position independent, as a
# library is.
function(lockstep_torch_pch target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "REUSE" "")
  set_target_properties(${target} PROPERTIES JOB_POOL_COMPILE lockstep_torch)
  if(NOT LOCKSTEP_TORCH_PCH)
    return()
  endif()
  if(arg_REUSE)
    target_precompile_headers(${target} REUSE_FROM ${arg_REUSE})
    target_compile_options(${target} PRIVATE -fPIC)
  else()
    target_precompile_headers(${target} PRIVATE
      <ATen/ATen.h>
      <torch/torch.h>
      <torch/csrc/distributed/c10d/ProcessGroup.hpp>
      <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
      <torch/csrc/distributed/c10d/reducer.hpp>)
  endif()
  lockstep_cache_with_precompiled_header(${target})
endfunction()
