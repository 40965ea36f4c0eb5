#include "base/environment.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/text.h"

namespace lockstep {

std::string environment_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string cache_folder() {
  if (std::string chosen = environment_variable("LOCKSTEP_CACHE"); !chosen.empty()) return chosen;
  std::string caches = environment_variable("XDG_CACHE_HOME");
  if (caches.empty()) caches = environment_variable("HOME") + "/.cache";
  return caches + "/lockstep";
}

bool is_program(const std::string& file) {
  std::error_code unknown;
  return std::filesystem::is_regular_file(file, unknown) && ::access(file.c_str(), X_OK) == 0;
}

std::string find_program(const std::string& program, std::string_view path) {
  if (contains_text(program, "/")) return is_program(program) ? program : "";
  while (!path.empty()) {
    const std::string_view folder = take_until(path, ':');
    if (folder.empty()) continue;
    std::string file = (std::filesystem::path(folder) / program).string();
    if (is_program(file)) return file;
  }
  return {};
}

}  // namespace lockstep
