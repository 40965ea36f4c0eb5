#include "runtime/launch/forked_ranks.h"

#include <sys/prctl.h>

#include <filesystem>
#include <sstream>
#include <system_error>

#include <fmt/format.h>

#include "base/files/read_file.h"

namespace lockstep::runtime {

Subreaper::Subreaper() { prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }
Subreaper::~Subreaper() { prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); }

Result<std::vector<Process>> take_forked_ranks(const std::string& file, int ranks) {
  constexpr std::size_t kBytes = 1U << 16U;
  const Result<std::string> text = read_file(file, kBytes);
  if (!text) return text.error();
  std::vector<Process> out;
  std::istringstream pids(*text);
  for (pid_t pid = 0; pids >> pid;) {
    SpawnOptions options;
    options.helpers_end_with_it = true;
    out.push_back(Process::of_child(pid, options));
  }
  if (out.size() != static_cast<std::size_t>(ranks))
    return Error{fmt::format("not the process ids of {} ranks", ranks), {file}, ""};
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
  return out;
}

}  // namespace lockstep::runtime
