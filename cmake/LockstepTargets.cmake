# The three ways in which this project makes a target.
#
#   lockstep_library(NAME  FOLDERS . a …  [EXCEPT a/b.cc …]  [SOURCES c.cc …]  [LINKS lockstep_base …]
#                          [RAW_BYTES] [TYPED_BYTES d.cc …] [RUNS_ONCE] [FILE_BY_FILE] [FMT_AND_JSON])
#                                                                                   static, PIC
#   lockstep_test(NAME     [FOLDERS . a … [EXCEPT …]]  [SOURCES a_test.cc …]  LINKS …
#                          [LABEL core|runtime] [TIMEOUT s] [PARTS …] [COST n] [TORCH])
#   lockstep_bench(NAME    SOURCES a_bench.cc …  LINKS …)
#
# And the one way in which it embeds files in a program:
#
#   lockstep_embed(FUNCTION lockstep::sim::texts  HEADER sim/texts.h  FILES a.yaml …)

include_guard(GLOBAL)

# Set by the presets that CI builds from nothing. Half of a file's compilation goes into headers: several
# files are compiled as one, libraries and tests with a precompiled header each; optimising what runs once
# takes the rest of a test's. It is slower for somebody who edits one file and builds again. `core` goes
# without: clang-tidy reads its commands, each file must compile by itself, and the tests are optimised
# and warned about like the rest.
option(LOCKSTEP_QUICK_BUILD
  "Compile several files as one, with precompiled headers, tests with -O1 (OFF: to edit one file)" OFF)

# How many files are compiled as one. They share one namespace: no two files of a target may give the
# same name to different things, not in anonymous namespaces either. 0 takes all files of a target as
# one, which shows every such pair.
set(LOCKSTEP_QUICK_FILES 16 CACHE STRING "How many files LOCKSTEP_QUICK_BUILD compiles as one at most; 0: all")
mark_as_advanced(LOCKSTEP_QUICK_FILES)

if(LOCKSTEP_QUICK_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC frees memory as soon as it has used 0.1 GB, which is a tenth of the compilation of 16 files. Where
  # there is enough memory it waits until it has used 1 GB.
  cmake_host_system_information(RESULT _lockstep_memory_mb QUERY TOTAL_PHYSICAL_MEMORY)
  cmake_host_system_information(RESULT _lockstep_cores QUERY NUMBER_OF_LOGICAL_CORES)
  math(EXPR _lockstep_memory_per_core "${_lockstep_memory_mb} / ${_lockstep_cores}")
  if(_lockstep_memory_per_core GREATER 3500)
    add_compile_options(--param=ggc-min-heapsize=1000000)
  endif()
endif()

# After lockstep_warnings(). CMake leaves out files with compile options of their own.
function(lockstep_several_files_as_one target)
  if(NOT LOCKSTEP_QUICK_BUILD)
    return()
  endif()
  set(batch 0)
  if(LOCKSTEP_QUICK_FILES GREATER 0)
    # All of about one size: 49 files are 4 times 13 rather than 3 times 16 and a single one.
    get_target_property(sources ${target} SOURCES)
    list(LENGTH sources count)
    math(EXPR units "(${count} + ${LOCKSTEP_QUICK_FILES} - 1) / ${LOCKSTEP_QUICK_FILES}")
    math(EXPR batch "(${count} + ${units} - 1) / ${units}")
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
  # What is global in one file may be a local name in the next; the core preset warns of the rest.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-shadow -Wshadow=local)
    # GCC 12 sees overflows in std::string's own insert() and replace() there, which do not happen.
    if(CMAKE_CXX_FLAGS_RELEASE MATCHES "-O3")
      target_compile_options(${target} PRIVATE -Wno-stringop-overflow)
    endif()
  else()
    target_compile_options(${target} PRIVATE -Wno-shadow)
  endif()
endfunction()

# The .cc files of folders, except some; both relative to the folder of the CMakeLists.txt.
function(lockstep_sources out folders except)
  set(sources "")
  foreach(folder IN LISTS folders)
    file(GLOB found CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}
      ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc)
    list(APPEND sources ${found})
  endforeach()
  if(except)
    list(REMOVE_ITEM sources ${except})
  endif()
  list(TRANSFORM sources PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# The precompiled header of the libraries that use fmt and JSON, made by the first of them, for each level
# of optimisation: GCC 12 takes one of another level, and crashes. Ours are not in it: reading them takes
# little.
function(lockstep_library_headers target level)
  set(headers lockstep_library_headers${level})
  if(NOT TARGET ${headers})
    add_library(${headers} OBJECT ${CMAKE_SOURCE_DIR}/cmake/headers.cc)
    target_link_libraries(${headers} PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
    lockstep_warnings(${headers})  # -Wpedantic changes what GCC predefines
    target_compile_options(${headers} PRIVATE ${level})
    set_target_properties(${headers} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_precompile_headers(${headers} PRIVATE
      <algorithm> <array> <charconv> <chrono> <cmath> <cstdint> <deque> <filesystem> <fstream> <functional>
      <iostream> <map> <memory> <numeric> <optional> <random> <set> <span> <sstream> <string> <string_view>
      <tuple> <unordered_map> <utility> <variant> <vector>
      <fmt/format.h> <nlohmann/json.hpp>)
    lockstep_cache_with_precompiled_header(${headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
  lockstep_cache_with_precompiled_header(${target})
endfunction()

# The precompiled header of the tests, made by the first of them. For targets that are compiled alike.
function(lockstep_test_headers target)
  set(quick -O1)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # With so little optimisation GCC 12 sees overruns where there are none.
    list(APPEND quick -Wno-error=stringop-overflow -Wno-error=stringop-overread)
  endif()
  if(LOCKSTEP_SANITIZE STREQUAL "address")
    # The tests' own arithmetic is not what is under test: half of their compilation is saved. -O0 saves
    # 5 % more and costs 30 % of their run: the linker may take a test's copy of an inline function.
    list(TRANSFORM quick REPLACE -O1 -Og)
    list(APPEND quick -fno-sanitize=undefined)
  endif()
  if(NOT TARGET lockstep_test_headers)
    add_library(lockstep_test_headers OBJECT ${CMAKE_SOURCE_DIR}/cmake/headers.cc)
    target_link_libraries(lockstep_test_headers PRIVATE
      GTest::gmock GTest::gtest_main nlohmann_json::nlohmann_json)
    lockstep_warnings(lockstep_test_headers)
    target_compile_options(lockstep_test_headers PRIVATE ${quick})
    target_precompile_headers(lockstep_test_headers PRIVATE
      <algorithm> <filesystem> <fstream> <functional> <map> <numeric> <optional> <random> <regex> <set>
      <sstream> <string> <vector>
      <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp>)
    lockstep_cache_with_precompiled_header(lockstep_test_headers)
  endif()
  target_compile_options(${target} PRIVATE ${quick})
  target_precompile_headers(${target} REUSE_FROM lockstep_test_headers)
  lockstep_cache_with_precompiled_header(${target})
endfunction()

# Without it ccache does not cache a file that uses a precompiled header.
function(lockstep_cache_with_precompiled_header target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
endfunction()

# FOLDERS: every .cc file of these folders (not of folders in them) except those of EXCEPT.
# SOURCES: others, such as generated ones.
# RAW_BYTES: it goes through the bytes of files by pointers. Checked by the sanitizers.
# TYPED_BYTES: its files that lay types over such bytes. Checked by the sanitizers.
# RUNS_ONCE: it takes no time that anybody notices. The sanitizers and LOCKSTEP_QUICK_BUILD optimise it
#   less, which saves a third of its compilation.
# FILE_BY_FILE: libraries that strange programs load take from it only the files that they use.
# FMT_AND_JSON: it uses fmt and nlohmann-json, in .cc files and, of JSON, in headers.
function(lockstep_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "RAW_BYTES;RUNS_ONCE;FILE_BY_FILE;FMT_AND_JSON" ""
    "FOLDERS;EXCEPT;SOURCES;LINKS;TYPED_BYTES")
  lockstep_sources(sources "${arg_FOLDERS}" "${arg_EXCEPT}")
  foreach(source IN LISTS arg_SOURCES)
    cmake_path(ABSOLUTE_PATH source NORMALIZE)
    list(APPEND sources ${source})
  endforeach()
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${arg_LINKS})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  lockstep_warnings(${name})
  if(NOT arg_FILE_BY_FILE)
    lockstep_several_files_as_one(${name})
  endif()
  if(arg_RAW_BYTES AND LOCKSTEP_SANITIZE STREQUAL "address")
    target_compile_options(${name} PRIVATE -fsanitize=pointer-overflow)
  endif()
  if(arg_TYPED_BYTES AND LOCKSTEP_SANITIZE STREQUAL "address")
    # In these alone: it takes half as long again as all the rest of a compilation.
    set_source_files_properties(${arg_TYPED_BYTES} PROPERTIES COMPILE_OPTIONS -fsanitize=alignment)
  endif()
  if(arg_FMT_AND_JSON)
    target_link_libraries(${name} PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
  endif()
  # The preset has -O1, which compiles a third faster than -O3: enough for all but what takes time.
  set(level "")
  if(arg_RUNS_ONCE AND LOCKSTEP_SANITIZE)
    set(level -O0)
  elseif(LOCKSTEP_QUICK_BUILD AND NOT LOCKSTEP_SANITIZE AND NOT arg_RUNS_ONCE)
    set(level -O3)
  endif()
  target_compile_options(${name} PRIVATE ${level})
  if(arg_FMT_AND_JSON AND LOCKSTEP_QUICK_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    lockstep_library_headers(${name} "${level}")
  endif()
endfunction()

# A GoogleTest program, which is one of CTest's tests. FOLDERS, EXCEPT: as in lockstep_library. PARTS: it
# is several of CTest's tests instead, which run beside each other: NAME=FILTER, filters as GoogleTest's
# (A.*:B.*), and one more for what none of them names. COST: the larger, the earlier CTest starts it.
# TORCH: its files include Torch's headers.
function(lockstep_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TORCH" "LABEL;TIMEOUT;COST" "FOLDERS;EXCEPT;SOURCES;LINKS;PARTS")
  if(NOT arg_LABEL)
    set(arg_LABEL core)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 1800)  # against a hang, not against a slow machine
  endif()
  set(sources "")
  if(arg_FOLDERS)
    lockstep_sources(sources "${arg_FOLDERS}" "${arg_EXCEPT}")
  endif()
  add_executable(${name} ${sources} ${arg_SOURCES})
  foreach(source IN LISTS sources arg_SOURCES)
    cmake_path(ABSOLUTE_PATH source NORMALIZE)
    set_property(GLOBAL APPEND PROPERTY LOCKSTEP_TEST_SOURCES ${source})
  endforeach()
  target_link_libraries(${name} PRIVATE ${arg_LINKS} GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE
    LOCKSTEP_SOURCE_DIR="${CMAKE_SOURCE_DIR}" LOCKSTEP_BINARY_DIR="${CMAKE_BINARY_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  lockstep_warnings(${name})
  lockstep_several_files_as_one(${name})
  if(arg_TORCH)
    lockstep_torch_pch(${name} REUSE lockstep_runtime)
  elseif(LOCKSTEP_QUICK_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    lockstep_test_headers(${name})
  endif()
  set(tests ${name})
  if(arg_PARTS)
    set(tests "")
    set(filters "")
    foreach(part IN LISTS arg_PARTS)
      string(REGEX MATCH "^([^=]*)=(.*)$" matched ${part})
      add_test(NAME ${CMAKE_MATCH_1} COMMAND ${name} --gtest_filter=${CMAKE_MATCH_2})
      list(APPEND tests ${CMAKE_MATCH_1})
      list(APPEND filters ${CMAKE_MATCH_2})
    endforeach()
    list(JOIN filters ":" filters)
    add_test(NAME ${name} COMMAND ${name} --gtest_filter=*-${filters})
    list(APPEND tests ${name})
  else()
    add_test(NAME ${name} COMMAND ${name})
  endif()
  if(arg_COST)
    set_tests_properties(${tests} PROPERTIES COST ${arg_COST})
  endif()
  # GoogleTest lists what was skipped last, and failures after that: a program with a failure
  # is not a skipped one.
  set_tests_properties(${tests} PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT}
    SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\] [^\n]*\n*$")
endfunction()

function(lockstep_bench name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINKS")
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_LINKS} benchmark::benchmark)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
  lockstep_warnings(${name})
endfunction()

# Writes ${CMAKE_CURRENT_BINARY_DIR}/<function>.cc, which defines FUNCTION as HEADER declares it:
#   std::span<const EmbeddedFile> texts();   with FILES
#   std::string_view text();                 with FILE, a single one
# Files are relative to the folder of the CMakeLists.txt. A change of a file configures again.
function(lockstep_embed)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "FUNCTION;HEADER;FILE" "FILES")
  string(REGEX MATCH "^(.*)::([^:]*)$" matched ${arg_FUNCTION})
  set(namespace ${CMAKE_MATCH_1})
  set(function ${CMAKE_MATCH_2})
  set(names "")
  set(rows "")
  foreach(file IN LISTS arg_FILE arg_FILES)
    cmake_path(ABSOLUTE_PATH file NORMALIZE)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE path)
    file(READ ${file} text)
    list(APPEND names ${path})
    string(APPEND rows "      {\"${path}\", R\"embedded(${text})embedded\"},\n")
  endforeach()
  if(arg_FILE)
    set(definition "std::string_view ${function}() {\n  return R\"embedded(${text})embedded\";\n}\n")
  else()
    set(definition "std::span<const EmbeddedFile> ${function}() {\n")
    string(APPEND definition "  static constexpr EmbeddedFile files[] = {\n${rows}  };\n")
    string(APPEND definition "  return files;\n}\n")
  endif()
  list(JOIN names ", " names)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/embedded.cc.in ${CMAKE_CURRENT_BINARY_DIR}/${function}.cc @ONLY)
endfunction()
