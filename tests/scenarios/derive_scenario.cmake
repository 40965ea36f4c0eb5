# Compares the calls that `lockstep derive` says each rank of SCENARIO makes with those that the run in
# RUN recorded, and leaves a row for the table of docs/derived.md in ROW.
execute_process(
  COMMAND ${LOCKSTEP} derive ${SCENARIO} --against ${RUN}
  OUTPUT_VARIABLE said ERROR_VARIABLE complained RESULT_VARIABLE status)
message("${said}${complained}")
get_filename_component(name ${SCENARIO} NAME_WE)
get_filename_component(family ${SCENARIO} DIRECTORY)
get_filename_component(family ${family} NAME)
if(status EQUAL 2 AND complained MATCHES "cannot be derived: ([^\n]*)")
  file(WRITE ${ROW} "| ${family}/${name} | – | – | ${CMAKE_MATCH_1} |\n")
elseif(status EQUAL 0 AND said MATCHES "([0-9,]+) ranks?, ([0-9,]+) calls?: recorded as derived")
  file(WRITE ${ROW} "| ${family}/${name} | ${CMAKE_MATCH_1} | ${CMAKE_MATCH_2} | as derived |\n")
else()
  message(FATAL_ERROR "the derivation of ${SCENARIO} is not what was recorded (status ${status})")
endif()
