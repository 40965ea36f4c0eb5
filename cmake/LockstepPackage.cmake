# The Debian package of `lockstep`: the program (without LibTorch), manual pages, completion, the
# recorders for NCCL programs, and the scenarios, machines and plans that are shipped. `scripts/package` builds it.
#
# Version: that of the project; between releases with the number of commits and the commit, so that
# a later one is newer: 0.1.0~git642.b981e1c. Dependencies are what the program is linked with.

include_guard(GLOBAL)

find_program(LOCKSTEP_HELP2MAN help2man REQUIRED)
set(pages ${CMAKE_BINARY_DIR}/packaging)
add_custom_command(OUTPUT ${pages}/made
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${pages}
  COMMAND ${CMAKE_SOURCE_DIR}/scripts/packaging/make_man $<TARGET_FILE:lockstep> ${pages}/man
  COMMAND ${CMAKE_COMMAND} -E make_directory ${pages}/completion
  COMMAND $<TARGET_FILE:lockstep> completion bash > ${pages}/completion/lockstep
  COMMAND $<TARGET_FILE:lockstep> completion zsh > ${pages}/completion/_lockstep
  COMMAND $<TARGET_FILE:lockstep> completion fish > ${pages}/completion/lockstep.fish
  COMMAND gzip -9nc ${CMAKE_SOURCE_DIR}/CHANGELOG.md > ${pages}/changelog.gz
  COMMAND ${CMAKE_COMMAND} -E touch ${pages}/made
  DEPENDS lockstep ${CMAKE_SOURCE_DIR}/scripts/packaging/make_man ${CMAKE_SOURCE_DIR}/CHANGELOG.md
  COMMENT "Writing manual pages and completion" VERBATIM)
add_custom_target(package_files ALL DEPENDS ${pages}/made)

install(DIRECTORY ${pages}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${pages}/completion/lockstep
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${pages}/completion/_lockstep
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${pages}/completion/lockstep.fish
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(DIRECTORY examples scenarios sim/machines sim/plans DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep)
install(DIRECTORY runtime/record/python/lockstep_record DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep
  FILES_MATCHING PATTERN "*.py" PATTERN "__pycache__" EXCLUDE)
install(PROGRAMS runtime/record/python/lockstep_record.py verify/certificates/check_certificate.py
  DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep)
install(FILES runtime/record/python/lockstep_watch.py runtime/record/python/lockstep_watch_all.py
  DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep/python)
install(FILES scripts/packaging/copyright ${pages}/changelog.gz README.md
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/lockstep)

find_program(git_program git)
set(package_version ${PROJECT_VERSION})
if(git_program AND EXISTS ${CMAKE_SOURCE_DIR}/.git)
  execute_process(COMMAND ${git_program} describe --exact-match --tags --match v${PROJECT_VERSION}
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} RESULT_VARIABLE untagged OUTPUT_QUIET ERROR_QUIET)
  if(untagged)
    execute_process(COMMAND ${git_program} rev-list --count HEAD
      WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE commits
      OUTPUT_STRIP_TRAILING_WHITESPACE)
    execute_process(COMMAND ${git_program} rev-parse --short HEAD
      WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE commit
      OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(APPEND package_version "~git${commits}.${commit}")
  endif()
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_VERSION ${package_version})
set(CPACK_PACKAGE_CONTACT "The Lockstep authors <maintainers@lockstep.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_DESCRIPTION
  "Finds why a distributed training job hangs, dies or computes the wrong thing:
reads the traces of its ranks (PyTorch's Flight Recorder, profiles, NCCL's logs,
its own), proves deadlocks, names rank, call and parameter, and predicts time and
memory on machines that you do not have. Training jobs of its own need
lockstep-worker, which is built from source with LibTorch.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS python3) # check-certificate runs the checker in it
include(CPack)
