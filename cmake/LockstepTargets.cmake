# The three ways in which this project makes a target.
#
#   lockstep_library(NAME  SOURCES a.cc …  [LINKS lockstep_base …])   a layer: static, PIC
#   lockstep_test(NAME     SOURCES a_test.cc …  LINKS … [LABEL core|runtime] [TIMEOUT s])
#   lockstep_bench(NAME    SOURCES a_bench.cc …  LINKS …)

include_guard(GLOBAL)

function(lockstep_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINKS")
  add_library(${name} STATIC ${arg_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${name} PUBLIC ${arg_LINKS})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  lockstep_warnings(${name})
endfunction()

# A GoogleTest program; each of its tests becomes one of CTest's.
function(lockstep_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL;TIMEOUT" "SOURCES;LINKS")
  if(NOT arg_LABEL)
    set(arg_LABEL core)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 1800)  # against a hang, not against a slow machine
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINKS} GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE
    LOCKSTEP_SOURCE_DIR="${CMAKE_SOURCE_DIR}" LOCKSTEP_BINARY_DIR="${CMAKE_BINARY_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  lockstep_warnings(${name})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT}
    SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\] [0-9]+ test")
endfunction()

function(lockstep_bench name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINKS")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINKS} benchmark::benchmark)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
  lockstep_warnings(${name})
endfunction()
