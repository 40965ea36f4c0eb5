// Calls the program as a shell would, within this process.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/tables.h"
#include "cli/program.h"

namespace lockstep::cli {

struct Outcome {
  int status = 0;
  std::string out;
  std::string err;
};

inline Outcome run_lockstep(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"lockstep"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.status = run_program(static_cast<int>(argv.size()), argv.data());
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

// No line is wider than 80 columns.
inline void expect_fits_a_terminal(const std::string& text) {
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    EXPECT_LE(columns_of(text.substr(begin, end - begin)), 80U) << text.substr(begin, end - begin);
}

}  // namespace lockstep::cli
