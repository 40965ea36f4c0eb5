#include "runtime/launch/run_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fmt/core.h>

#include "base/files/read_file.h"
#include "base/files/write_file.h"
#include "base/text.h"

namespace lockstep::runtime {

namespace {

namespace fs = std::filesystem;

std::string rank_file(const std::string& folder, int rank, const char* ending) {
  return fmt::format("{}/rank_{}{}", folder, rank, ending);
}

bool holds_traces(const fs::path& folder) {
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".ring") || name.find(".trace.jsonl") != std::string::npos) return true;
  }
  return false;
}

fs::path unused_name(const fs::path& folder) {
  std::error_code unknown;
  fs::path name = folder;
  for (int i = 2; fs::exists(name, unknown); ++i)
    name = fs::path(fmt::format("{}-{}", folder.string(), i));
  return name;
}

}  // namespace

std::string run_folder_name(const std::string& scenario_file, std::time_t now) {
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> time{};
  std::strftime(time.data(), time.size(), "%Y%m%dT%H%M%SZ", &utc);
  return fmt::format("{}-{}", fs::path(scenario_file).stem().string(), time.data());
}

Result<std::string> make_run_folder(const std::string& folder, const Scenario& scenario,
                                    bool may_rename) {
  const fs::path path = may_rename ? unused_name(folder) : fs::path(folder);
  if (holds_traces(path))
    return Error{"the folder holds the traces of an earlier run",
                 {path.string()},
                 "name another folder, or remove this one"};
  if (const Status made = make_folder(path.string()); !made) return made.error();
  std::error_code failed;
  // For people who look at the folder later. A scenario that is not a file cannot be copied, and
  // that is fine.
  fs::copy_file(scenario.file, path / "scenario.yaml", fs::copy_options::overwrite_existing,
                failed);
  return path.string();
}

std::string ring_file(const std::string& folder, int rank) {
  return rank_file(folder, rank, ".ring");
}
std::string log_file(const std::string& folder, int rank) {
  return rank_file(folder, rank, ".log");
}
std::string result_file(const std::string& folder, int rank) {
  return rank_file(folder, rank, ".result.json");
}
std::string stack_file(const std::string& folder, int rank) {
  return rank_file(folder, rank, ".stack");
}
std::string store_file(const std::string& folder) { return folder + "/store"; }

std::vector<std::string> last_lines(const std::string& file, std::size_t lines) {
  // A few lines of a log; its end is enough.
  constexpr std::size_t kMostBytes = 4096;
  const Result<std::string> end = read_file_end(file, kMostBytes);
  if (!end) return {};
  std::string_view text = *end;
  std::vector<std::string> out;
  while (!text.empty() && out.size() < lines) {
    if (text.back() == '\n') text.remove_suffix(1);
    const std::size_t before = text.rfind('\n');
    const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
    if (begin < text.size()) out.push_back(printable(text.substr(begin)));
    text = text.substr(0, begin);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::optional<Error> last_error(const std::string& log) {
  constexpr std::size_t kErrorLines = 20;  // longest error, in lines
  constexpr std::string_view kError = "error: ", kFix = "  fix: ";
  Error out;
  bool found = false;
  for (const std::string& line : last_lines(log, kErrorLines)) {
    // Lines of an error, as Error::str() writes them:
    //   job.yaml:3:1: error: unknown key "modle"
    //     fix: did you mean "model"?
    // Further lines continue the message or the fix.
    const std::size_t mark = line.find(kError);
    if (mark == 0 || (mark != std::string::npos && line.substr(0, mark).ends_with(": "))) {
      out = {line.substr(mark + kError.size()), {line.substr(0, mark == 0 ? 0 : mark - 2)}, ""};
      found = true;
    } else if (line.starts_with(kFix)) {
      out.fix = line.substr(kFix.size());
    } else {
      (out.fix.empty() ? out.message : out.fix) += "\n" + line;
    }
  }
  return found ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace lockstep::runtime
