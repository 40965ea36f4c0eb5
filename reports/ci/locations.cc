#include "reports/ci/locations.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/numbers.h"
#include "base/text.h"

namespace lockstep::reports {
namespace {

// Removes ":<number>" from the end of `text`. Returns the number, from 1; empty if there is none or
// it does not fit, and `text` stays.
std::optional<std::uint32_t> take_number(std::string_view& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == kNpos) return std::nullopt;
  // Consumers hold lines as signed 32-bit numbers.
  const auto value = parse_number<std::int32_t>(text.substr(colon + 1));
  if (!value || *value < 1) return std::nullopt;
  text = text.substr(0, colon);
  return static_cast<std::uint32_t>(*value);
}

// The part of `file` below `folder`; empty if it is not inside. "/job/src/a.py" in "/job" is
// "src/a.py", and "/jobs/a.py" is not inside.
std::string_view below(std::string_view file, std::string_view folder) {
  while (folder.ends_with('/')) folder.remove_suffix(1);
  if (file.size() <= folder.size() + 1 || !file.starts_with(folder) || file[folder.size()] != '/')
    return {};
  return file.substr(folder.size() + 1);
}

// "./a//b/../c.py" as "a/c.py"; ".." at the beginning is left out: a path that leaves the
// repository is not in it.
std::string normal(std::string_view file) {
  std::vector<std::string_view> parts;
  while (!file.empty()) {
    const std::size_t slash = file.find('/');
    const std::string_view part = file.substr(0, slash);
    file = slash == kNpos ? std::string_view() : file.substr(slash + 1);
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
    } else if (!part.empty() && part != ".") {
      parts.push_back(part);
    }
  }
  std::string out;
  for (const std::string_view part : parts) out.append(out.empty() ? "" : "/").append(part);
  return out;
}

bool is_absolute(std::string_view file) {
  const bool drive = file.size() > 2 && file[1] == ':' && file[2] == '/';
  return file.starts_with('/') || drive;
}

}  // namespace

std::optional<SourceLocation> source_location(std::string_view at) {
  const auto last = take_number(at);
  if (!last) return std::nullopt;
  SourceLocation out;
  // One number is the line; of two, "57:3", the last is the column.
  std::string_view before = at;
  if (const auto line = take_number(before); line && !before.empty()) {
    at = before;
    out.line = *line;
    out.column = last;
  } else {
    out.line = *last;
  }
  if (at.empty()) return std::nullopt;
  out.file = printable(at);
  // Paths of Windows.
  std::replace(out.file.begin(), out.file.end(), '\\', '/');
  return out;
}

Result<PathMap> parse_path_map(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == kNpos || equals == 0 || equals + 1 == text.size())
    return Error{fmt::format("--map-path {}: expected FROM=TO", printable(text)),
                 {},
                 "write --map-path /app=. where the job's /app is the repository"};
  return PathMap{text.substr(0, equals), text.substr(equals + 1)};
}

std::string Repository::path_of(std::string_view file) const {
  for (const PathMap& map : maps) {
    const std::string_view rest = below(file, map.from);
    if (!rest.empty()) return normal(fmt::format("{}/{}", map.to, rest));
  }
  if (!is_absolute(file)) return normal(file);
  if (!root.empty())
    if (const std::string_view rest = below(file, root); !rest.empty()) return normal(rest);
  // In a container the repository lies elsewhere: "/app/megatron/core/mlp.py" is here
  // "megatron/core/mlp.py". The longest end is the surest. A file name alone (__init__.py) is in
  // many folders, so it counts only right below the job's own folder: /app/train.py.
  const std::string whole = normal(file);
  for (std::size_t begin = 0; has && begin < whole.size();) {
    const std::string end = whole.substr(begin);
    const bool alone = end.find('/') == kNpos;
    const bool near_top = std::count(whole.begin(), whole.end(), '/') == 1;
    if ((!alone || near_top) && has(end)) return end;
    if (alone) break;
    begin = whole.find('/', begin) + 1;
  }
  return whole;
}

Repository repository_of_this_process(std::vector<PathMap> maps) {
  std::error_code none;
  Repository out;
  out.here = std::filesystem::current_path(none).string();
  out.maps = std::move(maps);
  for (const char* name : {"GITHUB_WORKSPACE", "CI_PROJECT_DIR"})
    if (out.root.empty()) out.root = environment_variable(name);
  if (out.root.empty()) out.root = out.here;
  out.has = [root = out.root](const std::string& path) {
    std::error_code failed;
    return std::filesystem::is_regular_file(fmt::format("{}/{}", root, path), failed);
  };
  return out;
}

std::optional<SourceLocation> Locator::source(std::string_view at) const {
  std::optional<SourceLocation> out = source_location(at);
  if (!out) return std::nullopt;
  out->file = repository_.path_of(out->file);
  if (out->file.empty()) return std::nullopt;
  return out;
}

std::optional<SourceLocation> Locator::in_evidence(const verify::Finding& finding) const {
  std::optional<SourceLocation> first;
  for (const verify::Evidence& evidence : finding.evidence) {
    std::optional<SourceLocation> location = source(evidence.at);
    if (!location) continue;
    if (std::binary_search(finding.culprits.begin(), finding.culprits.end(), evidence.rank))
      return location;
    if (!first) first = std::move(location);
  }
  return first;
}

std::string Locator::trace_of(const verify::Finding& finding) const {
  if (run_ == nullptr) return {};
  // A culprit may have left no trace; one of those who waited for it did.
  for (const std::vector<trace::Rank>* ranks : {&finding.culprits, &finding.ranks})
    for (const trace::Rank rank : *ranks)
      if (const trace::RankTrace* trace = run_->find(rank); trace != nullptr) return trace->source;
  if (!run_->unreadable.empty()) return run_->unreadable.front().error.location.file;
  return run_->ranks.empty() ? "" : run_->ranks.front().source;
}

SourceLocation Locator::of(const verify::Finding& finding) const {
  if (scenario_) {
    SourceLocation out = *scenario_;
    out.file = repository_.path_of(
        is_absolute(out.file) ? out.file : fmt::format("{}/{}", repository_.here, out.file));
    return out;
  }
  if (std::optional<SourceLocation> found = in_evidence(finding)) return *found;
  const std::string trace = printable(trace_of(finding));
  std::string path = repository_.path_of(
      is_absolute(trace) || trace.empty() ? trace : fmt::format("{}/{}", repository_.here, trace));
  // Trace files have no lines that a person would look at: the first.
  return {path.empty() ? "unknown" : path, 1, std::nullopt};
}

}  // namespace lockstep::reports
