#include "trace/evidence/named_processes.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/formats/log_lines.h"

namespace lockstep::trace {

namespace {

constexpr std::size_t kLongestName = 64;

// "TP5", "DP12": two or more capitals with a number behind them.
bool is_place(std::string_view word) {
  const auto is_capital = [](char c) { return c >= 'A' && c <= 'Z'; };
  const auto* const number = std::find_if_not(word.begin(), word.end(), is_capital);
  return number - word.begin() >= 2 && number != word.end() &&
         std::all_of(number, word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string process_named_by(std::string_view line) {
  if (const auto number = number_after(line, "-- Process ");
      number && *number >= 0 && contains_text(line, "terminated with the following error"))
    return fmt::format("process {}", *number);
  constexpr std::string_view kProcess = "Process ";
  if (!line.starts_with(kProcess) || !line.ends_with(':')) return "";
  const std::string_view name = line.substr(kProcess.size(), line.size() - kProcess.size() - 1);
  if (name.size() > kLongestName || name.find_first_of(" \t:") != kNpos) return "";
  return std::string(name);
}

std::string place_named_by(std::string_view before) {
  const std::size_t close = before.rfind(']');
  const std::size_t open = close == kNpos ? kNpos : before.rfind('[', close);
  if (open == kNpos || close - open > kLongestName) return "";
  std::string_view words = before.substr(open + 1, close - open - 1);
  std::string out;
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (is_place(words.substr(0, end)))
      out += fmt::format("{}{}", out.empty() ? "" : " ", words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return out;
}

std::optional<DeadActor::Death> DeadActor::take(std::string_view line) {
  if (contains_text(line, kBegin)) {
    *this = {};
    began_ = true;
    return std::nullopt;
  }
  if (!began_) return std::nullopt;
  if (contains_text(line, kPid)) pid_ = number_after(line, kPid).value_or(kNone);
  if (contains_text(line, kName)) name_ = word_after(line, kName).substr(0, kLongestName);
  if (contains_text(line, kHost)) host_ = word_after(line, kHost).substr(0, kLongestName);
  if (!contains_text(line, kEnd)) return std::nullopt;
  Death out;
  out.pid = pid_ > 0 ? pid_ : kNone;
  out.host = host_;
  out.text = fmt::format("actor {}: its worker process has died", name_.empty() ? "of Ray" : name_);
  *this = {};
  return out;
}

}  // namespace lockstep::trace
