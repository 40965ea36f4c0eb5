# lockstep::torch_cuda: LibTorch's CUDA half (libtorch_cuda + libc10_cuda, NCCL behind it), on top of
# lockstep::torch. No CUDA compiler and no GPU is needed to build with it.
#
# It is where the torch of lockstep::torch has it, if that is an installed one; else in the folder
# that `scripts/fetch-torch --cuda` made beside it (torch-<version>-cuda). Both are laid out as pip
# does, so that the libraries find each other: torch/lib/ beside nvidia/.
#
# Of CUDA's headers, the runtime's and NCCL's are needed. Those of cuBLAS, cuSPARSE and cuSOLVER are
# only named by Torch's; where they are not there, runtime/device/cuda_handles declares the few types.

include_guard(GLOBAL)

if(EXISTS ${LOCKSTEP_TORCH_FOLDER}/lib/libtorch_cuda.so)
  set(_lockstep_cuda_root ${LOCKSTEP_TORCH_FOLDER}/..)
  set(_lockstep_cuda_lib ${LOCKSTEP_TORCH_FOLDER}/lib)
else()
  set(_lockstep_cuda_root ${LOCKSTEP_TORCH_FOLDER}-cuda)
  set(_lockstep_cuda_lib ${_lockstep_cuda_root}/torch/lib)
endif()

# The first folder that is whole: some have cuda_runtime_api.h without what it includes, such as
# nvidia/cu13/include of a torch from pip that was installed without nvidia-cuda-crt.
set(_lockstep_cuda_headers cuda_runtime_api.h crt/host_config.h crt/host_defines.h)
set(LOCKSTEP_CUDA_INCLUDE_DIR "LOCKSTEP_CUDA_INCLUDE_DIR-NOTFOUND")
set(_lockstep_cuda_looked "")
set(_lockstep_cuda_toolkits $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda /opt/cuda /usr)
list(TRANSFORM _lockstep_cuda_toolkits APPEND /include)
foreach(folder IN ITEMS ${_lockstep_cuda_root}/nvidia/cu13/include
                        ${_lockstep_cuda_root}/nvidia/cuda_runtime/include
                        ${_lockstep_cuda_toolkits})
  set(_lockstep_missing "")
  foreach(header IN LISTS _lockstep_cuda_headers)
    if(NOT EXISTS ${folder}/${header})
      string(APPEND _lockstep_missing " ${header}")
    endif()
  endforeach()
  if(_lockstep_missing STREQUAL "")
    set(LOCKSTEP_CUDA_INCLUDE_DIR ${folder})
    break()
  endif()
  string(APPEND _lockstep_cuda_looked "\n    ${folder} lacks${_lockstep_missing}")
endforeach()
# Not cached: another Torch may be chosen for the same build folder.
unset(LOCKSTEP_NCCL_INCLUDE_DIR CACHE)
find_path(LOCKSTEP_NCCL_INCLUDE_DIR nccl.h
  HINTS ${_lockstep_cuda_root}/nvidia/nccl/include ${_lockstep_cuda_toolkits})
mark_as_advanced(LOCKSTEP_NCCL_INCLUDE_DIR)
# Torch's headers call the runtime's events themselves. Torch's own copy comes first: one process, one
# runtime. pip's has no name without a version.
set(_lockstep_cudart "")
foreach(folder IN ITEMS ${_lockstep_cuda_lib} ${LOCKSTEP_TORCH_FOLDER}/lib
                        ${_lockstep_cuda_root}/nvidia/cu13/lib
                        ${_lockstep_cuda_root}/nvidia/cuda_runtime/lib
                        ${LOCKSTEP_CUDA_INCLUDE_DIR}/../lib64 ${LOCKSTEP_CUDA_INCLUDE_DIR}/../lib
                        ${LOCKSTEP_CUDA_INCLUDE_DIR}/../lib/${CMAKE_LIBRARY_ARCHITECTURE})
  file(GLOB _lockstep_cudart ${folder}/libcudart.so ${folder}/libcudart.so.*)
  if(_lockstep_cudart)
    list(GET _lockstep_cudart 0 _lockstep_cudart)
    break()
  endif()
endforeach()
foreach(library IN ITEMS libtorch_cuda.so libc10_cuda.so)
  if(NOT EXISTS ${_lockstep_cuda_lib}/${library})
    message(FATAL_ERROR
      "LibTorch's CUDA half is not in ${_lockstep_cuda_lib}: ${library} is missing.\n"
      "  fetch it:     scripts/fetch-torch --cuda run    (--cuda link: to build only)\n"
      "  or without:   cmake --preset full")
  endif()
endforeach()
if(NOT LOCKSTEP_CUDA_INCLUDE_DIR)
  message(FATAL_ERROR
    "No folder has all of the CUDA runtime's headers:${_lockstep_cuda_looked}\n"
    "  install the CUDA toolkit and name it:  CUDA_HOME=/path/to/cuda\n"
    "  or, beside a torch from pip:           pip install nvidia-cuda-crt")
endif()
if(NOT _lockstep_cudart)
  message(FATAL_ERROR
    "The CUDA runtime libcudart.so is missing; it is looked for beside Torch, in "
    "${_lockstep_cuda_root}/nvidia and in lib64 beside ${LOCKSTEP_CUDA_INCLUDE_DIR}.\n"
    "  beside a torch from pip:  pip install nvidia-cuda-runtime")
endif()
if(NOT LOCKSTEP_NCCL_INCLUDE_DIR)
  message(FATAL_ERROR
    "NCCL's header nccl.h is missing; it is looked for in ${_lockstep_cuda_root}/nvidia/nccl/include, "
    "CUDA_HOME and where the compiler looks.")
endif()
message(STATUS "Lockstep: CUDA half of LibTorch in ${_lockstep_cuda_lib}, headers in ${LOCKSTEP_CUDA_INCLUDE_DIR}")

add_library(lockstep_torch_cuda INTERFACE)
add_library(lockstep::torch_cuda ALIAS lockstep_torch_cuda)
target_include_directories(lockstep_torch_cuda SYSTEM INTERFACE
  ${LOCKSTEP_CUDA_INCLUDE_DIR} ${LOCKSTEP_NCCL_INCLUDE_DIR})
# Behind all others: the real headers go before.
target_compile_options(lockstep_torch_cuda INTERFACE
  -idirafter ${CMAKE_SOURCE_DIR}/runtime/device/cuda_handles)
target_compile_definitions(lockstep_torch_cuda INTERFACE USE_C10D_NCCL)
target_link_libraries(lockstep_torch_cuda INTERFACE
  lockstep::torch ${_lockstep_cuda_lib}/libtorch_cuda.so ${_lockstep_cuda_lib}/libc10_cuda.so
  ${_lockstep_cudart})
target_link_options(lockstep_torch_cuda INTERFACE LINKER:-rpath,${_lockstep_cuda_lib})
