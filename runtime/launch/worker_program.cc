#include "runtime/launch/worker_program.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "base/text.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

bool is_program(const fs::path& path) {
  std::error_code unknown;
  return fs::is_regular_file(path, unknown) && access(path.c_str(), X_OK) == 0;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

WorkerSearch worker_search_of_this_process() {
  std::error_code unknown;
  return {variable("LOCKSTEP_WORKER"), fs::read_symlink("/proc/self/exe", unknown).string(),
          variable("PATH")};
}

Result<std::string> find_worker(const WorkerSearch& search) {
  if (!search.named.empty()) {
    if (is_program(search.named)) return search.named;
    return Error{"LOCKSTEP_WORKER names no program: " + printable(search.named),
                 {},
                 "unset it, or set it to the path of lockstep-worker"};
  }
  const fs::path beside = fs::path(search.program).parent_path() / "lockstep-worker";
  if (is_program(beside)) return beside.string();
  std::istringstream folders(search.path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.empty() && is_program(fs::path(folder) / "lockstep-worker"))
      return (fs::path(folder) / "lockstep-worker").string();
  }
  return Error{"lockstep-worker, which trains, is neither beside lockstep nor in PATH",
               {},
               "build it (scripts/setup full, then cmake --workflow or scripts/test), or set "
               "LOCKSTEP_WORKER to its path"};
}

}  // namespace lockstep
