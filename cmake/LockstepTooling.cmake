# What speeds up or instruments every build; none of it changes what is built.
#
# - ccache compiles through the cache when it is installed (LOCKSTEP_CCACHE=OFF: not).
# - mold, else lld, links when installed (LOCKSTEP_FAST_LINKER=OFF: the default linker).
# - LOCKSTEP_SANITIZE=address (ASan + UBSan), thread (TSan) or fuzzer (ASan, UBSan and what libFuzzer
#   follows; needs clang) instruments all of our code.
#
# Include it after project() and before the first target: it sets directory-wide options.

include_guard(GLOBAL)

option(LOCKSTEP_CCACHE "Compile through ccache when it is installed" ON)
option(LOCKSTEP_FAST_LINKER "Link with mold or lld when one is installed" ON)
set(LOCKSTEP_SANITIZE "" CACHE STRING
    "Instrument the build: address (ASan + UBSan), thread (TSan) or fuzzer (libFuzzer, ASan + UBSan)")
set_property(CACHE LOCKSTEP_SANITIZE PROPERTY STRINGS "" address thread fuzzer)

# A launcher that the user chose (CMAKE_CXX_COMPILER_LAUNCHER) stays.
if(LOCKSTEP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(LOCKSTEP_CCACHE_PROGRAM ccache)
  mark_as_advanced(LOCKSTEP_CCACHE_PROGRAM)
  if(LOCKSTEP_CCACHE_PROGRAM)
    # With a precompiled header ccache refuses to cache unless told that macros defined in the
    # header and __TIME__ do not matter to us.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
        ${LOCKSTEP_CCACHE_PROGRAM})
    message(STATUS "Lockstep: compiling through ${LOCKSTEP_CCACHE_PROGRAM}")
  endif()
endif()

if(LOCKSTEP_FAST_LINKER)
  include(CheckLinkerFlag)
  foreach(linker IN ITEMS mold lld)
    check_linker_flag(CXX -fuse-ld=${linker} LOCKSTEP_LINKS_WITH_${linker})
    if(LOCKSTEP_LINKS_WITH_${linker})
      add_link_options(-fuse-ld=${linker})
      message(STATUS "Lockstep: linking with ${linker}")
      break()
    endif()
  endforeach()
endif()

if(LOCKSTEP_SANITIZE)
  if(LOCKSTEP_SANITIZE STREQUAL "address")
    set(_lockstep_sanitizers address,undefined)
  elseif(LOCKSTEP_SANITIZE STREQUAL "thread")
    set(_lockstep_sanitizers thread)
  elseif(LOCKSTEP_SANITIZE STREQUAL "fuzzer")
    if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      message(FATAL_ERROR "LOCKSTEP_SANITIZE=fuzzer needs clang: -DCMAKE_CXX_COMPILER=clang++")
    endif()
    # Programs that libFuzzer's main() runs add it when they link (tests/fuzz).
    add_compile_options(-fsanitize=fuzzer-no-link)
    set(_lockstep_sanitizers address,undefined)
  else()
    message(FATAL_ERROR
      "LOCKSTEP_SANITIZE is '${LOCKSTEP_SANITIZE}'; it may be empty, 'address', 'thread' or 'fuzzer'.")
  endif()
  # The first finding ends the program, so that a test cannot pass over it.
  add_compile_options(-fsanitize=${_lockstep_sanitizers} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer -g1)
  if(LOCKSTEP_SANITIZE STREQUAL "address")
    # AddressSanitizer stops at these as well, and without them half of the compilation is saved:
    # a null pointer used, an object outgrown or left by arithmetic. Wrong casts of classes would need
    # a hierarchy. lockstep_library() looks at pointers that overflow where bytes of files are read
    # (RAW_BYTES), at alignment where types are laid over them (TYPED_BYTES).
    add_compile_options(-fno-sanitize=null,object-size,vptr,alignment,pointer-overflow)
  endif()
  add_link_options(-fsanitize=${_lockstep_sanitizers})
  message(STATUS "Lockstep: sanitizers ${_lockstep_sanitizers}")
endif()
