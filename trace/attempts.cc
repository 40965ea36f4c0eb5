#include "trace/attempts.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/numbers.h"
#include "trace/formats/ring/reader.h"
#include "trace/formats/ring/ring_file.h"

namespace lockstep::trace {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kAttemptFolder = "attempt_";

// A ring file's mark: which run of which launcher's attempt it is, "<run>/<launcher>-<attempt>".
struct Mark {
  std::string run, launcher;
  int attempt = 0;
};
std::optional<Mark> mark_of(const fs::path& file) {
  std::string head(ring::kHeaderBytes, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(in.gcount()));
  const std::string job = ring_job(head);
  const std::size_t slash = job.find('/');
  const std::size_t dash = slash == std::string::npos ? slash : job.find('-', slash);
  if (dash == std::string::npos) return std::nullopt;
  const auto attempt = parse_number<std::uint16_t>(std::string_view(job).substr(dash + 1));
  if (!attempt) return std::nullopt;
  return Mark{job.substr(0, slash), job.substr(slash, dash - slash), *attempt};
}

// The attempts in a folder.
struct Found {
  std::map<int, std::vector<std::string>> folders;  // by number
  std::vector<std::pair<Mark, std::string>> rings;  // those outside of these folders
};

Found attempts_in(const fs::path& folder) {
  Found out;
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    std::error_code unknown;
    const std::string name = it->path().filename().string();
    if (it->is_directory(unknown) && name.starts_with(kAttemptFolder)) {
      if (const auto number =
              parse_number<std::uint16_t>(std::string_view(name).substr(kAttemptFolder.size())))
        out.folders[*number].push_back(it->path().string());
    } else if (it->path().extension() == ".ring" && it->is_regular_file(unknown)) {
      if (auto mark = mark_of(it->path())) out.rings.emplace_back(*mark, it->path().string());
    }
  }
  return out;
}

}  // namespace

std::vector<Attempt> earlier_attempts(const std::vector<std::string>& paths) {
  std::error_code unknown;
  if (paths.size() != 1 || !fs::is_directory(paths[0], unknown)) return {};
  Found found = attempts_in(paths[0]);
  if (found.folders.empty() && found.rings.empty()) {  // torchrun's folders of runs: the only one
    std::error_code failed;
    for (fs::directory_iterator it(paths[0], failed), end; !failed && it != end;
         it.increment(failed)) {
      if (!it->is_directory(unknown)) continue;
      Found inner = attempts_in(it->path());
      if (inner.folders.empty()) continue;
      if (!found.folders.empty()) return {};
      found = std::move(inner);
    }
  }
  std::map<int, std::vector<std::string>> all = std::move(found.folders);
  if (all.empty() && found.rings.empty()) return {};
  int judged = all.empty() ? 0 : all.rbegin()->first;
  if (!found.rings.empty()) {  // the newest of those outside of folders, as load_run takes it
    const Mark newest =
        std::max_element(found.rings.begin(), found.rings.end(), [](const auto& a, const auto& b) {
          return a.first.run < b.first.run;
        })->first;
    judged = newest.attempt;
    for (auto& [mark, file] : found.rings)
      if (mark.launcher == newest.launcher) all[mark.attempt].push_back(std::move(file));
  }
  all.erase(all.lower_bound(judged), all.end());
  std::vector<Attempt> out;
  for (auto& [number, files] : all) {
    std::sort(files.begin(), files.end());
    out.push_back({number, std::move(files)});
  }
  return out;
}

}  // namespace lockstep::trace
