#include "runtime/launch/scenario_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "base/files/read_file.h"
#include "base/result.h"
#include "base/text.h"
#include "runtime/replay/replay_scenario.h"
#include "trace/formats/format.h"
#include "verify/rules/rules.h"

namespace lockstep::runtime {

namespace {

namespace fs = std::filesystem;

bool is_yaml(const fs::path& path) {
  return path.extension() == ".yaml" || path.extension() == ".yml";
}

Result<std::vector<std::string>> files_below(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code failed;
  for (fs::recursive_directory_iterator it(folder, failed), end; !failed && it != end;
       it.increment(failed)) {
    std::error_code unknown;
    if (it->is_regular_file(unknown) && is_yaml(it->path())) files.push_back(it->path().string());
  }
  if (failed) return system_error("cannot read the folder", failed.value(), folder);
  if (files.empty())
    return Error{"no scenarios in this folder",
                 {folder},
                 "they are *.yaml; to judge traces: lockstep verify"};
  std::sort(files.begin(), files.end());
  return files;
}

// The error for a file that is a trace; nothing for other files.
std::optional<Error> trace_instead(const std::string& file) {
  FileBuffer buffer;
  const Result<std::string_view> head =
      buffer.read(file, kLargestFile, [](std::string_view) { return false; });
  if (!head || trace::recognise(*head) == nullptr) return std::nullopt;
  return Error{"this is a trace, not a scenario",
               {file},
               fmt::format("to judge it: lockstep verify {}", printable(file))};
}

}  // namespace

Result<std::vector<std::string>> scenario_files(const std::vector<std::string>& paths) {
  std::vector<std::string> out;
  for (const std::string& path : paths) {
    std::error_code unknown;
    if (fs::is_directory(path, unknown)) {
      const Result<std::vector<std::string>> found = files_below(path);
      if (!found) return found.error();
      out.insert(out.end(), found->begin(), found->end());
    } else if (fs::exists(path, unknown)) {
      out.push_back(path);
    } else if (fs::exists(fmt::format("{}.yaml", path), unknown)) {
      out.push_back(fmt::format("{}.yaml", path));
    } else {
      return Error{
          "no such file or folder", {path}, "`lockstep scenario --list` shows what is there"};
    }
  }
  return out;
}

std::optional<Error> unknown_rule(const Scenario& scenario) {
  if (!scenario.expect) return std::nullopt;
  std::vector<std::string> known;
  for (const verify::Rule& row : verify::all_rules()) known.emplace_back(row.name);
  for (std::size_t i = 0; i < scenario.expect->rules.size(); ++i) {
    const std::string& name = scenario.expect->rules[i];
    if (verify::rule_from_name(name)) continue;
    return Error{fmt::format("\"expect.rules\" has an unknown rule: \"{}\"", printable(name)),
                 location_in(scenario, fmt::format("/expect/rules/{}", i)),
                 did_you_mean(name, known, "`lockstep explain` lists them")};
  }
  return std::nullopt;
}

Result<Scenario> load_checked_scenario(const std::string& file) {
  Result<Scenario> scenario = load_scenario(file);
  if (!scenario) return trace_instead(file).value_or(scenario.error());
  if (const auto error = unknown_rule(*scenario)) return *error;
  if (scenario->replays()) {
    if (const Result<trace::Run> program = load_replay_program(*scenario); !program) {
      return program.error();
    }
  }
  return scenario;
}

}  // namespace lockstep::runtime
