// The program, run as a user would, in a folder of the test's own.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/launch/process.h"
#include "tests/runtime/launch/launch_testing.h"

namespace lockstep {

class ProgramTest : public ::testing::Test {
 protected:
  // The exit status; what was printed is in log().
  int lockstep(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), LOCKSTEP_PROGRAM);
    std::filesystem::remove(folder_.file("log"));
    Result<runtime::Process> program = runtime::Process::spawn(arguments, folder_.file("log"));
    if (!program) return -1;
    runtime::launch_testing::eventually([&] { return !program->running(); },
                                        std::chrono::minutes(10));
    return program->poll() ? program->poll()->exit_status : -1;
  }
  std::string log() const { return TempDir::read(folder_.file("log")); }
  // The file of a shipped scenario: "modality/manual_hang_bad".
  static std::string shipped(const std::string& name) {
    return LOCKSTEP_SOURCE_DIR "/scenarios/" + name + ".yaml";
  }
  TempDir folder_;
};

}  // namespace lockstep
