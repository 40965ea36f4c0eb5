#include "reports/output_targets.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/files/write_file.h"
#include "base/tables.h"
#include "base/terminal.h"
#include "base/text.h"

namespace lockstep::reports {
namespace {

// Wraps a fix below the "  fix: " that Error::str() puts before it.
std::string wrapped_fix(const std::string& text) {
  constexpr std::size_t kBefore = 7;
  std::string out;
  for (const char c : wrap(text, 80 - kBefore)) {
    out += c;
    if (c == '\n') out.append(kBefore, ' ');
  }
  return out;
}

// What the endings of names mean. Where two endings name one form, the longer one comes first.
constexpr std::pair<std::string_view, std::string_view> kEndings[] = {
    {".timeline.json", "timeline"},
    {".perfetto.json", "timeline"},
    {".codequality.json", "gitlab"},
    {".json", "json"},
    {".html", "html"},
    {".htm", "html"},
    {".md", "markdown"},
    {".csv", "csv"},
    {".dot", "dot"},
    {".gv", "dot"},
    {".sarif", "sarif"},
    {".xml", "junit"},
    {".txt", "text"},
};

// The form that a path without KIND stands for: "-" is text for people. Empty: none.
std::string kind_by_ending(std::string_view path, const OutputForms& forms) {
  if (path == "-") return "text";
  for (const auto& [ending, kind] : kEndings) {
    if (path.ends_with(ending) &&
        std::find(forms.kinds.begin(), forms.kinds.end(), kind) != forms.kinds.end())
      return std::string(kind);
  }
  return {};
}

// True for "html=report.html", also with a kind that does not exist; false for a path that happens
// to have "=" in it ("runs/lr=0.1/report.html").
bool names_a_kind(std::string_view before_equals) {
  return before_equals.find_first_of("/.") == std::string_view::npos;
}

// Whether `path` names something below `folder`, by the names alone.
bool is_below(const std::string& path, const std::string& folder) {
  const std::filesystem::path way =
      std::filesystem::path(path).lexically_proximate(std::filesystem::path(folder));
  return !way.empty() && *way.begin() != ".." && way != std::filesystem::path(path);
}

}  // namespace

std::size_t text_width(bool to_stdout) { return to_stdout ? stdout_columns() : kReportColumns; }

Status write_stdout(const std::string& text) {
  std::cout << text << std::flush;
  // For example a closed pipe or a full disk.
  if (std::cout) return Status::ok();
  return Error{"cannot write to standard output", {}, "check where it is redirected to"};
}

Result<OutputTarget> parse_output_target(const std::string& text, const OutputForms& forms) {
  constexpr std::size_t kLongestKind = 100;  // longer ones are not worth a guess
  const std::size_t equals = text.find('=');
  const std::string kind = text.substr(0, equals);
  const std::string shown = printable(text);
  if (equals == std::string::npos || !names_a_kind(kind)) {
    if (std::string form = kind_by_ending(text, forms); !form.empty())
      return OutputTarget{std::move(form), text};
    return Error{fmt::format("--output {}: no kind of {} has this ending", shown, forms.noun),
                 {},
                 wrapped_fix(fmt::format("write KIND=PATH, such as {}={}; kinds: {}",
                                         forms.kinds.front(), shown, join_and(forms.kinds)))};
  }
  if (equals + 1 == text.size())
    return Error{fmt::format("--output {}: the path is missing", shown),
                 {},
                 fmt::format("write {}={}.{}", kind, forms.noun, kind)};
  if (std::find(forms.kinds.begin(), forms.kinds.end(), kind) == forms.kinds.end()) {
    const std::string near = kind.size() < kLongestKind ? nearest(kind, forms.kinds) : "";
    return Error{fmt::format("--output {}: no such kind of {}", shown, forms.noun),
                 {},
                 wrapped_fix(fmt::format("{}kinds: {}",
                                         near.empty() ? "" : fmt::format("did you mean {}? ", near),
                                         join_and(forms.kinds)))};
  }
  return OutputTarget{kind, text.substr(equals + 1)};
}

Result<std::vector<OutputTarget>> parse_output_targets(const std::vector<std::string>& texts,
                                                       const OutputForms& forms) {
  std::vector<OutputTarget> targets;
  for (const std::string& text : texts) {
    Result<OutputTarget> target = parse_output_target(text, forms);
    if (!target) return target.error();
    targets.push_back(std::move(*target));
  }
  if (std::count_if(targets.begin(), targets.end(),
                    [](const OutputTarget& target) { return target.to_stdout(); }) > 1)
    return Error{"two --output options write to standard output", {}, "send one of them to a file"};
  return targets;
}

Status check_writable(const std::vector<OutputTarget>& targets,
                      const std::vector<std::string>& made) {
  for (const OutputTarget& target : targets) {
    const bool later = std::any_of(made.begin(), made.end(), [&](const std::string& folder) {
      return !folder.empty() && is_below(target.path, folder);
    });
    if (target.to_stdout() || later) continue;
    if (const Status can = lockstep::check_writable(target.path); !can) return can;
  }
  return Status::ok();
}

Status write_targets(const std::vector<OutputTarget>& targets, bool quiet,
                     const OutputContent& content) {
  // Files first: the reader of standard output may close it (`| head`), which ends this process.
  const OutputTarget* to_stdout = nullptr;
  for (const OutputTarget& target : targets) {
    if (target.to_stdout())
      to_stdout = &target;
    else if (Status written = write_file(target.path, content(target.kind, false)); !written)
      return written;
  }
  if (to_stdout != nullptr) return write_stdout(content(to_stdout->kind, true));
  return quiet ? Status::ok() : write_stdout(content("text", true));
}

}  // namespace lockstep::reports
