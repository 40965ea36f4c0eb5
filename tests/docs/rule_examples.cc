#include "tests/docs/rule_examples.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/check.h"

namespace lockstep::docs {
namespace {

// A trace block as files, one for each header line, and what is printed for their folder.
std::string report_of(const std::string& trace, const Lockstep& lockstep) {
  std::string folder = (std::filesystem::temp_directory_path() / "lockstep_rule_XXXXXX").string();
  LOCKSTEP_CHECK(::mkdtemp(folder.data()) != nullptr, "cannot make " + folder);
  std::istringstream lines(trace);
  std::ofstream file;
  int files = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("{\"header\"")) {
      if (file.is_open()) file << "\n";
      file.close();
      file.open(folder + "/rank_" + std::to_string(files++) + ".trace.jsonl");
      file << line;
    } else if (!line.empty()) {
      const bool goes_on = line.front() == ' ';
      file << (goes_on ? "" : "\n") << line;
    }
  }
  file << "\n";
  file.close();
  const std::string report = lockstep({"verify", folder});
  std::filesystem::remove_all(folder);
  return report;
}

}  // namespace

std::string with_reports(const std::string& page, const Lockstep& lockstep) {
  std::istringstream lines(page);
  std::string out, trace, block;  // `block`: the fence that we are behind; empty: none
  for (std::string line; std::getline(lines, line);) {
    const bool fence = line.starts_with("```");
    if (fence && block == "```report") out += report_of(trace, lockstep);
    if (fence && line == "```trace") trace.clear();
    if (fence)
      block = block.empty() ? line : "";
    else if (block == "```trace")
      trace += line + "\n";
    if (fence || block != "```report") out += line + "\n";
  }
  return out;
}

}  // namespace lockstep::docs
