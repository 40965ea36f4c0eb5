# lockstep_warnings(TARGET...): the warnings that our own code is held to.
#
# Headers of others are SYSTEM includes and stay outside. LOCKSTEP_WERROR=ON makes them errors, as our
# CI does; elsewhere a compiler that we have not tried still builds.

include_guard(GLOBAL)

option(LOCKSTEP_WERROR "Treat compiler warnings in our own code as errors" OFF)

function(lockstep_warnings)
  set(flags
    -Wall -Wextra -Wpedantic
    -Wshadow               # an inner name that hides an outer one
    -Wconversion           # silent narrowing of numbers, the usual way to lose a size
    -Wsign-conversion
    -Wnon-virtual-dtor
    -Woverloaded-virtual
    -Wold-style-cast
    -Wcast-qual
    -Wundef
    -Wformat=2
    -Wimplicit-fallthrough
    -Wextra-semi)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND flags -Wduplicated-cond -Wduplicated-branches -Wlogical-op)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
    # GCC 12 sees uninitialised members in moved-from std::variant and std::optional where there
    # are none (bug 105562 and its kin), and in std::string's operator+ overlapping copies and reads
    # out of bounds (105651 and its kin).
    list(APPEND flags -Wno-maybe-uninitialized -Wno-restrict -Wno-array-bounds)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    # GCC 13 sees std::vector<bool> and its kin, inlined through Torch's headers, write past the end of arrays,
    # which they do not (bug 110498 and its kin): in models/contrastive.cc.
    list(APPEND flags -Wno-stringop-overflow)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # Clang 17 and later see that libstdc++'s own std::stable_sort uses what C++17 deprecates. GCC looks
    # after ours.
    list(APPEND flags -Wno-deprecated-declarations)
  endif()
  # The code that sanitizers insert hides from GCC what bounds a string has, and it warns of overruns
  # that are none. The same sources are held to their warnings by every other build, and looking for
  # them is a tenth of a compilation.
  if(LOCKSTEP_SANITIZE)
    set(flags "")
  elseif(LOCKSTEP_WERROR)
    list(APPEND flags -Werror)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND LOCKSTEP_SANITIZE STREQUAL "thread")
    # ThreadSanitizer does not model std::atomic_thread_fence. Ours order plain loads from memory
    # that another process writes, which it does not see either.
    list(APPEND flags -Wno-tsan)
  endif()
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE ${flags})
  endforeach()
endfunction()
