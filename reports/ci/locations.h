// Where CI services show findings: a file of the checked-out repository, and a line.
//
// Traces name files as the job saw them, "/app/megatron/core/mlp.py:140". Code scanning and
// code quality show a result only at a path relative to the repository, and GitHub refuses a whole
// SARIF file for one result without a location:
// https://docs.github.com/en/code-security/reference/code-scanning/sarif-files/sarif-support
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trace/run.h"
#include "verify/report.h"

namespace lockstep::reports {

// The source location of a call as traces write it ("trainer.cc:120", "/job/src/train.py:57:3").
struct SourceLocation {
  std::string file;                     // valid UTF-8, with "/"
  std::uint32_t line = 0;               // from 1
  std::optional<std::uint32_t> column;  // from 1
};

// The file as it is written; empty if `at` does not end in a line number: then it is only text.
std::optional<SourceLocation> source_location(std::string_view at);

// "/app=." : what the job saw as /app/… is here the repository itself.
struct PathMap {
  std::string from, to;
};

// Errors: no "=", an empty side.
Result<PathMap> parse_path_map(const std::string& text);

// The checked-out repository.
struct Repository {
  std::string root;           // an absolute folder; empty: not known
  std::string here;           // the folder in which the command runs, absolute
  std::vector<PathMap> maps;  // the first that fits is used
  // Whether there is a file of this path, relative to the root. Empty: not asked.
  std::function<bool(const std::string& path)> has;

  // `file`, relative to the root and without "..": by a map; or because it is inside the root; or
  // as the longest end of the path that the repository has. What is outside of the repository
  // keeps its path without the leading "/": services refuse absolute paths.
  std::string path_of(std::string_view file) const;
};

// GITHUB_WORKSPACE or CI_PROJECT_DIR, else the folder in which the command runs.
Repository repository_of_this_process(std::vector<PathMap> maps = {});

// Gives every finding a location. Refers to the run.
class Locator {
 public:
  Locator() = default;
  // `run`: what was judged; may be null. `scenario`: the scenario that ran, if it was one: its
  // worker's own source lines are of no use in the repository of the scenario.
  explicit Locator(Repository repository, const trace::Run* run = nullptr,
                   std::optional<SourceLocation> scenario = std::nullopt)
      : repository_(std::move(repository)), run_(run), scenario_(std::move(scenario)) {}

  // The first of: the scenario's line; the source line of a culprit's evidence; that of any
  // evidence; the trace of the first culprit, or of the first rank; a file that could not be read.
  // Without any of them the file "unknown".
  SourceLocation of(const verify::Finding& finding) const;

  // The line in the user's program, if the evidence names one. Relative to the repository.
  std::optional<SourceLocation> source(std::string_view at) const;

 private:
  std::optional<SourceLocation> in_evidence(const verify::Finding& finding) const;
  std::string trace_of(const verify::Finding& finding) const;

  Repository repository_;
  const trace::Run* run_ = nullptr;
  std::optional<SourceLocation> scenario_;
};

}  // namespace lockstep::reports
