# lockstep::torch_cuda: LibTorch's CUDA half (libtorch_cuda + libc10_cuda, NCCL behind it), on top of
# lockstep::torch. No CUDA compiler and no GPU is needed to build with it.
#
# It is where the torch of lockstep::torch has it, if that is an installed one; else in the folder
# that `scripts/fetch-torch --cuda` made beside it (torch-<version>-cuda). Both are laid out as pip
# does, so that the libraries find each other: torch/lib/ beside nvidia/.
#
# Of CUDA's headers, the runtime's and NCCL's are needed. Those of cuBLAS, cuSPARSE and cuSOLVER are
# only named by Torch's; where they are not there, src/runtime/cuda_handles declares the few types.

include_guard(GLOBAL)

if(EXISTS ${LOCKSTEP_TORCH_FOLDER}/lib/libtorch_cuda.so)
  set(_lockstep_cuda_root ${LOCKSTEP_TORCH_FOLDER}/..)
  set(_lockstep_cuda_lib ${LOCKSTEP_TORCH_FOLDER}/lib)
else()
  set(_lockstep_cuda_root ${LOCKSTEP_TORCH_FOLDER}-cuda)
  set(_lockstep_cuda_lib ${_lockstep_cuda_root}/torch/lib)
endif()

# Not cached: another Torch may be chosen for the same build folder.
unset(LOCKSTEP_CUDA_INCLUDE_DIR CACHE)
unset(LOCKSTEP_NCCL_INCLUDE_DIR CACHE)
find_path(LOCKSTEP_CUDA_INCLUDE_DIR cuda_runtime_api.h
  HINTS ${_lockstep_cuda_root}/nvidia/cu13/include $ENV{CUDA_HOME}/include /usr/local/cuda/include)
find_path(LOCKSTEP_NCCL_INCLUDE_DIR nccl.h
  HINTS ${_lockstep_cuda_root}/nvidia/nccl/include $ENV{CUDA_HOME}/include /usr/local/cuda/include)
mark_as_advanced(LOCKSTEP_CUDA_INCLUDE_DIR LOCKSTEP_NCCL_INCLUDE_DIR)
foreach(needed IN ITEMS ${_lockstep_cuda_lib}/libtorch_cuda.so ${_lockstep_cuda_lib}/libc10_cuda.so
                        "${LOCKSTEP_CUDA_INCLUDE_DIR}" "${LOCKSTEP_NCCL_INCLUDE_DIR}")
  if(NOT EXISTS "${needed}")
    message(FATAL_ERROR
      "LibTorch's CUDA half is not in ${_lockstep_cuda_root}: libtorch_cuda.so, libc10_cuda.so, "
      "nvidia/cu13/include/cuda_runtime_api.h or nvidia/nccl/include/nccl.h is missing.\n"
      "  fetch it:     scripts/fetch-torch --cuda run    (--cuda link: to build only)\n"
      "  or without:   cmake --preset full")
  endif()
endforeach()
message(STATUS "Lockstep: CUDA half of LibTorch in ${_lockstep_cuda_lib}")

add_library(lockstep_torch_cuda INTERFACE)
add_library(lockstep::torch_cuda ALIAS lockstep_torch_cuda)
target_include_directories(lockstep_torch_cuda SYSTEM INTERFACE
  ${LOCKSTEP_CUDA_INCLUDE_DIR} ${LOCKSTEP_NCCL_INCLUDE_DIR})
# Behind all others: the real headers go before.
target_compile_options(lockstep_torch_cuda INTERFACE
  -idirafter ${CMAKE_SOURCE_DIR}/src/runtime/cuda_handles)
target_compile_definitions(lockstep_torch_cuda INTERFACE USE_C10D_NCCL)
target_link_libraries(lockstep_torch_cuda INTERFACE
  lockstep::torch ${_lockstep_cuda_lib}/libtorch_cuda.so ${_lockstep_cuda_lib}/libc10_cuda.so)
target_link_options(lockstep_torch_cuda INTERFACE LINKER:-rpath,${_lockstep_cuda_lib})
