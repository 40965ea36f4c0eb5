#include "trace/evidence/frames.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/text.h"

namespace lockstep::trace {

namespace {

// Whether a file is in the package of that name: "accelerate/state.py", as py-spy shortens paths,
// "/work/trl/trl/trainer/sft_trainer.py" or "/work/transformers/src/transformers/trainer.py", as in
// checkouts. The scripts beside the package in a checkout are the user's.
bool in_package(std::string_view file, std::string_view package) {
  for (std::size_t at = file.find(package); at != kNpos; at = file.find(package, at + 1)) {
    if (!file.substr(at + package.size()).starts_with('/')) continue;
    const std::string_view before = file.substr(0, at);
    if (before.empty() || before.ends_with("/src/") ||
        before.ends_with(fmt::format("/{}/", package)))
      return true;
  }
  return false;
}

}  // namespace

bool of_a_library(std::string_view file) {
  if (contains_any(file, {"torch/", "site-packages", "dist-packages", "/lib/python",
                          "multiprocessing/", "concurrent/", "asyncio/", "importlib/", "<frozen",
                          "deepspeed/", "megatron/core", "lightning/"}))
    return true;
  static constexpr std::array<std::string_view, 12> kPackages = {
      "accelerate",        "transformers",     "trl",          "peft",
      "pytorch_lightning", "lightning_fabric", "torchmetrics", "torchft",
      "torchvision",       "huggingface_hub",  "ignite",       "vllm"};
  if (std::any_of(kPackages.begin(), kPackages.end(),
                  [&](std::string_view package) { return in_package(file, package); }))
    return true;
  static constexpr std::array<std::string_view, 10> kFiles = {
      "threading.py", "selectors.py",  "queue.py",      "socket.py",     "ssl.py",
      "runpy.py",     "subprocess.py", "connection.py", "contextlib.py", "popen_fork.py"};
  const std::string_view base = file.substr(file.find_last_of('/') + 1);
  return std::any_of(kFiles.begin(), kFiles.end(),
                     [&](std::string_view name) { return base.starts_with(name); });
}

bool CalledFrom::take(std::string_view line) {
  constexpr std::size_t kLongest = 400;
  line = trimmed(line);
  if (line.starts_with('#')) line = trimmed(line.substr(std::min(line.find(' '), line.size())));
  std::size_t between = line.find(" from ");
  if (between == kNpos) between = line.find(" at ");
  const std::string_view function = line.substr(0, between);
  if (between == kNpos || function.empty() || contains_text(function, " ")) return false;
  const std::string_view place = trimmed(line.substr(line.find(' ', between + 1)));
  const std::size_t colon = place.rfind(':');
  const bool has_line = colon != kNpos && colon + 1 < place.size() &&
                        place.find_first_not_of("0123456789", colon + 1) == kNpos;
  if (!has_line || contains_text(place, " ") || line.size() > kLongest) return false;
  const std::string words = fmt::format("{} ({})", function, place);
  if (innermost_.empty()) innermost_ = words;
  if (users_.empty() && !of_a_library(place)) users_ = words;
  return true;
}

std::string CalledFrom::words() const {
  if (users_.empty() || users_ == innermost_) return innermost_;
  return fmt::format("{}, called from {}", innermost_, users_);
}

}  // namespace lockstep::trace
