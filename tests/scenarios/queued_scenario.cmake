# Runs one scenario with its calls queued as on a GPU (runtime/device/queued_calls.h): it must go as its `expect:`
# says, and come to the losses of the run in PLAIN, whose calls were Gloo's. (That its calls are those that
# `lockstep derive` derives is the test derived_NAME, which derives once for both runs.)
set(ENV{LOCKSTEP_QUEUED_CALLS} per-group)
file(REMOVE_RECURSE ${FOLDER})
execute_process(COMMAND ${LOCKSTEP} run --check --output-dir ${FOLDER} ${SCENARIO}
                RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "lockstep run ended with ${status}; traces and logs are in ${FOLDER}")
endif()

get_filename_component(name ${SCENARIO} NAME_WE)
if(name MATCHES "_ok$" AND NOT name MATCHES "balance_cost")  # which shares out by measured times
  foreach(run IN ITEMS ${FOLDER} ${PLAIN})
    file(READ ${run}/rank_0.result.json result)
    string(JSON losses GET ${result} losses)
    list(APPEND all "${losses}")
  endforeach()
  list(GET all 0 queued)
  list(GET all 1 plain)
  if(NOT queued STREQUAL plain)
    message(FATAL_ERROR "the losses are ${queued}, and those of Gloo's calls ${plain}")
  endif()
endif()
