#include "runtime/record/preload/rank_process.h"

#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>

namespace lockstep::runtime {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(pid_t pid) { return fs::path("/proc") / std::to_string(pid); }

// A process's variables as they were when it was started. Empty: they cannot be read.
std::map<std::string, std::string> variables_of(pid_t pid) {
  std::ifstream file(folder_of(pid) / "environ", std::ios::binary);
  std::map<std::string, std::string> out;
  for (std::string line; std::getline(file, line, '\0');) {
    if (const std::size_t at = line.find('='); at != std::string::npos)
      out.emplace(line.substr(0, at), line.substr(at + 1));
  }
  return out;
}

// 0: there is none, or it cannot be read. A process's line in /proc: "12 (python) S 1 …".
pid_t parent_of(pid_t pid) {
  std::string line;
  std::getline(std::ifstream(folder_of(pid) / "stat"), line);
  constexpr std::size_t kToParent = 4;  // ") S "
  const std::size_t at = line.rfind(')');
  if (at == std::string::npos || line.size() <= at + kToParent) return 0;
  const std::string rest = line.substr(at + kToParent);
  return launcher_number(rest.substr(0, rest.find(' '))).value_or(0);
}

fs::path program_of(pid_t pid) {
  std::error_code failed;
  return fs::read_symlink(folder_of(pid) / "exe", failed);
}

}  // namespace

std::optional<LaunchedRank> started_as_rank() {
  const Result<std::optional<LaunchedRank>> own = launched_rank(::getenv);
  if (!own || !*own) return std::nullopt;
  const Launcher* const launcher = find_launcher(::getenv);
  const fs::path program = program_of(::getpid());
  constexpr int kMaxAbove = 32;  // a rank is a few processes below its launcher
  pid_t pid = ::getppid();
  for (int i = 0; i < kMaxAbove && pid > 1; ++i, pid = parent_of(pid)) {
    const std::map<std::string, std::string> variables = variables_of(pid);
    const Environment get = [&](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    };
    // The launcher itself has none of its variables, or those of another one that started it.
    if (find_launcher(get) != launcher) break;
    const auto above = launched_rank(get);
    const bool same_rank = above && *above && (*above)->rank == (*own)->rank;
    if (same_rank && program_of(pid) == program) return std::nullopt;
  }
  return **own;
}

bool is_python() { return ::dlsym(RTLD_DEFAULT, "Py_IsInitialized") != nullptr; }

namespace {

using Check = int (*)();

class AtImport final : public c10::OpRegistrationListener {
 public:
  explicit AtImport(std::function<void()> act) : act_(std::move(act)) {}

  // LibTorch's own operators come without Python. The lock is not waited for: other threads may
  // hold it while they wait for the dispatcher, which calls this.
  void onOperatorRegistered(const c10::OperatorHandle& /*op*/) override {
    if (!act_) return;
    static const auto is_initialized =
        reinterpret_cast<Check>(::dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
    static const auto has_lock = reinterpret_cast<Check>(::dlsym(RTLD_DEFAULT, "PyGILState_Check"));
    if (is_initialized == nullptr || has_lock == nullptr) return;
    if (is_initialized() == 0 || has_lock() == 0) return;
    std::exchange(act_, nullptr)();
  }
  void onOperatorDeregistered(const c10::OperatorHandle& /*op*/) override {}

 private:
  std::function<void()> act_;
};

}  // namespace

void when_python_imports_torch(std::function<void()> act) {
  // Never removed: the dispatcher may be gone before this library is.
  static const auto* const kept =
      new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().addRegistrationListener(
          std::make_unique<AtImport>(std::move(act))));
  (void)kept;
}

}  // namespace lockstep::runtime
