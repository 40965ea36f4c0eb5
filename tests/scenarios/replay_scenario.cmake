# Makes a scenario of what a shipped scenario recorded, and runs it: it must go as its traces say. With
# REFUSED, none may be made of it: its verdict is not about calls. With QUEUED it must go so with its
# calls queued as on a GPU, too.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
execute_process(COMMAND ${LOCKSTEP} convert --to scenario ${RUN} -o ${FOLDER}/job.yaml
                RESULT_VARIABLE status)
if(REFUSED)
  if(NOT status EQUAL 2)
    message(FATAL_ERROR "lockstep convert --to scenario ended with ${status}, and should have refused ${RUN}")
  endif()
  return()
endif()
if(NOT status EQUAL 0)
  message(FATAL_ERROR "lockstep convert --to scenario ended with ${status}; the traces are in ${RUN}")
endif()
execute_process(COMMAND ${LOCKSTEP} run --check --output-dir ${FOLDER}/run ${FOLDER}/job.yaml
                RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "the replay ended with ${status}; traces and logs are in ${FOLDER}/run")
endif()
if(QUEUED)
  set(ENV{LOCKSTEP_QUEUED_CALLS} per-group)
  execute_process(COMMAND ${LOCKSTEP} run --check --output-dir ${FOLDER}/queued ${FOLDER}/job.yaml
                  RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "the replay with queued calls ended with ${status}; traces and logs are in ${FOLDER}/queued")
  endif()
endif()
