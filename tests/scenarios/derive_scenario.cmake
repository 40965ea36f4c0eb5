# Compares the calls that `lockstep derive` says each rank of SCENARIO makes with those that the runs in
# RUN and QUEUED recorded: looked at with the values of tensors, and RUN's also without them, on the meta
# device. Leaves a row for the table of docs/derived.md in ROW.
get_filename_component(name ${SCENARIO} NAME_WE)
get_filename_component(family ${SCENARIO} DIRECTORY)
get_filename_component(family ${family} NAME)

# derive(OPTION RUN...): sets `ranks`, `calls` and `why`, of which the last says why nothing is derived.
function(derive option)
  list(TRANSFORM ARGN PREPEND "--against=" OUTPUT_VARIABLE runs)
  execute_process(
    COMMAND ${LOCKSTEP} derive ${SCENARIO} ${runs} ${option}
    OUTPUT_VARIABLE said ERROR_VARIABLE complained RESULT_VARIABLE status)
  message("${option}: ${said}${complained}")
  set(ranks "–" PARENT_SCOPE)
  set(calls "–" PARENT_SCOPE)
  set(why "" PARENT_SCOPE)
  if(status EQUAL 2 AND complained MATCHES "cannot be derived( on the meta device)?: ([^\n]*)")
    set(why "${CMAKE_MATCH_2}" PARENT_SCOPE)
  elseif(status EQUAL 0 AND said MATCHES "([0-9,]+) ranks?, ([0-9,]+) calls?: recorded as derived")
    set(ranks ${CMAKE_MATCH_1} PARENT_SCOPE)
    set(calls ${CMAKE_MATCH_2} PARENT_SCOPE)
  else()
    message(FATAL_ERROR
      "the derivation of ${SCENARIO} (${option}) is not what was recorded (status ${status})")
  endif()
endfunction()

derive(--no-meta ${RUN} ${QUEUED})
set(row "| ${family}/${name} | ${ranks} | ${calls} ")
if(why STREQUAL "")
  set(values "as derived")
  derive(--meta ${RUN})
  if(why STREQUAL "")
    set(why "as derived")
  endif()
  string(APPEND row "| ${values} | ${why} |\n")
else()
  string(APPEND row "| ${why} | – |\n")
endif()
file(WRITE ${ROW} "${row}")
