# Runs one scenario in a fresh folder; fails unless it goes as its `expect:` says, and, with MORE being
# --reference, ends at the loss of one process that trains on all ranks' batches.
file(REMOVE_RECURSE ${FOLDER})
execute_process(COMMAND ${LOCKSTEP} run --check ${MORE} --output-dir ${FOLDER} ${SCENARIO}
                RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "lockstep run ended with ${status}; traces and logs are in ${FOLDER}")
endif()
