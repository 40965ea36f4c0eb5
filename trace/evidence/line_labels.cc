#include "trace/evidence/line_labels.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "trace/formats/log_lines.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

constexpr std::string_view kDockerLog = R"({"log":")";

// The end of "[31m" of a colour; the size of the text where it does not end.
std::size_t end_of_escape(std::string_view text, std::size_t at) {
  if (at + 1 >= text.size() || text[at + 1] != '[') return at + 1;
  std::size_t end = at + 2;
  while (end < text.size() && text[end] != '\n' && (text[end] < '@' || text[end] > '~')) ++end;
  return end < text.size() && text[end] == '\n' ? end : std::min(end + 1, text.size());
}

// What a process wrote, from a line of Docker's log. The text ends at the first quote that is not
// escaped.
void unpack_docker_line(std::string_view line, std::string& out) {
  out.clear();
  for (std::size_t at = kDockerLog.size(); at < line.size() && line[at] != '"'; ++at) {
    if (line[at] != '\\' || at + 1 == line.size()) {
      out += line[at];
      continue;
    }
    const char escaped = line[++at];
    if (escaped == 'n' || escaped == 'r') continue;  // the end of the line
    out += escaped == 't' ? '\t' : escaped;
  }
}

}  // namespace

// Without "2025-01-31T12:37:42.149692541Z ", and without what containerd writes behind it: "stderr
// F ".
std::string_view after_timestamp(std::string_view line) {
  constexpr std::string_view kShape = "0000-00-00T00:00:00";
  if (line.size() <= kShape.size()) return line;
  for (std::size_t i = 0; i < kShape.size(); ++i) {
    if (kShape[i] == '0' ? !is_digit(line[i]) : kShape[i] != line[i]) return line;
  }
  const std::size_t end = line.find(' ');
  constexpr std::size_t kLongest = 40;
  if (end == kNpos || end > kLongest) return line;
  line.remove_prefix(end + 1);
  for (const std::string_view stream : {"stderr F ", "stdout F "})
    if (line.starts_with(stream)) line.remove_prefix(stream.size());
  return line;
}

Rank rank_behind(std::string_view text, std::string_view words) {
  const auto number = number_after(text, words);
  const bool possible = number && is_possible_rank(*number, kMaxWorldSize);
  return possible ? Rank(static_cast<std::int32_t>(*number)) : Rank(kNone);
}

std::vector<Rank> listed_ranks(std::string_view list) {
  std::vector<Rank> out;
  list = list.substr(0, list.find_first_of("}]"));
  list.remove_prefix(std::min(list.find_first_of("0123456789"), list.size()));
  while (!list.empty()) {
    const auto number = number_after(list, "");
    if (number && is_possible_rank(*number, kMaxWorldSize))
      out.emplace_back(static_cast<std::int32_t>(*number));
    list.remove_prefix(std::min(list.find(','), list.size()));
    list.remove_prefix(std::min(list.find_first_of("0123456789"), list.size()));
  }
  return out;
}

std::vector<Rank> tasks_in(std::string_view list) {
  constexpr std::size_t kMost = 64;
  std::vector<Rank> out;
  while (!list.empty() && is_digit(list.front())) {
    std::int32_t first = 0;
    const char* const end = list.data() + list.size();
    const char* at = std::from_chars(list.data(), end, first).ptr;
    std::int32_t last = first;
    if (at != end && *at == '-') at = std::from_chars(at + 1, end, last).ptr;
    if (!is_possible_rank(first, kMaxWorldSize) || !is_possible_rank(last, kMaxWorldSize))
      return out;
    for (std::int32_t r = first; r <= last && out.size() < kMost; ++r) out.emplace_back(r);
    if (at != end && *at == ',') ++at;
    list.remove_prefix(static_cast<std::size_t>(at - list.data()));
  }
  return out;
}

namespace {

// "[1,3]<stderr>:text".
std::optional<LabelledLine> parse_mpirun_label(std::string_view line) {
  const std::size_t close = line.find("]<std");
  const std::size_t comma = line.rfind(',', close);
  const std::size_t end = line.find(">:", close);
  if (comma == kNpos || end == kNpos) return std::nullopt;
  const std::vector<Rank> rank = tasks_in(line.substr(comma + 1, close - comma - 1));
  if (rank.size() != 1) return std::nullopt;
  std::string_view text = line.substr(end + 2);
  // PMIx writes a blank behind the label, Open MPI before version 5 none.
  if (line.substr(0, close).find('@') != kNpos && text.starts_with(' ')) text.remove_prefix(1);
  return LabelledLine{rank[0], {}, text};
}

// "[pod/worker-3/pytorch] text": the pod.
std::optional<LabelledLine> parse_pod_label(std::string_view line) {
  constexpr std::string_view kPod = "[pod/";
  constexpr std::size_t kLongest = 256;
  const std::size_t close = line.substr(0, kLongest).find(']');
  if (!line.starts_with(kPod) || close == kNpos) return std::nullopt;
  const std::string_view name = line.substr(kPod.size(), close - kPod.size());
  std::string_view text = line.substr(close + 1);
  if (text.starts_with(' ')) text.remove_prefix(1);
  return LabelledLine{Rank(kNone), name.substr(0, name.find('/')), after_timestamp(text)};
}

// "[3] text"; "[3]" alone where the process wrote an empty line.
std::optional<LabelledLine> parse_rank_in_brackets(std::string_view line) {
  constexpr std::size_t kLongest = 8;
  const std::size_t close = line.substr(0, kLongest).find(']');
  if (!line.starts_with('[') || close == kNpos) return std::nullopt;
  const std::string_view number = line.substr(1, close - 1);
  if (number.empty() || !std::all_of(number.begin(), number.end(), is_digit)) return std::nullopt;
  std::string_view text = line.substr(close + 1);
  if (!text.empty() && !text.starts_with(' ')) return std::nullopt;
  if (!text.empty()) text.remove_prefix(1);
  const std::vector<Rank> rank = tasks_in(number);
  if (rank.size() != 1) return std::nullopt;
  return LabelledLine{rank[0], {}, text};
}

// "worker-3  | text" and "node01: text". Names of hosts have a number here: words that end in a
// colon ("INFO: …") do not.
std::optional<LabelledLine> parse_host_label(std::string_view line, char end) {
  constexpr std::size_t kLongest = 64;
  const auto of_name = [](char c) {
    return is_letter(c) || is_digit(c) || c == '-' || c == '.' || c == '_';
  };
  const auto stop = std::find_if_not(line.begin(), line.end(), of_name);
  const std::string_view name = line.substr(0, static_cast<std::size_t>(stop - line.begin()));
  const bool named = !name.empty() && name.size() <= kLongest &&
                     std::any_of(name.begin(), name.end(), is_digit) &&
                     !std::all_of(name.begin(), name.end(), is_digit);
  if (!named) return std::nullopt;
  std::string_view text = line.substr(name.size());
  if (end == '|') text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  if (!text.starts_with(end)) return std::nullopt;
  text.remove_prefix(1);
  if (!text.empty() && !text.starts_with(' ')) return std::nullopt;
  if (!text.empty()) text.remove_prefix(1);
  return LabelledLine{Rank(kNone), name, after_timestamp(text)};
}

std::optional<LabelledLine> parse_form(std::string_view line, LabelForm form) {
  switch (form) {
    case LabelForm::rank_in_brackets:
      return parse_rank_in_brackets(line);
    case LabelForm::host_and_bar:
      return parse_host_label(line, '|');
    case LabelForm::host_and_colon:
      return parse_host_label(line, ':');
    case LabelForm::none:
      break;
  }
  return std::nullopt;
}

}  // namespace

// The form of nine in ten of the lines that are not empty, if no more than one in three is the only
// one with its label: "step1: …", "step2: …" are no labels.
LabelForm label_form_of(std::string_view bytes) {
  constexpr std::size_t kLooked = std::size_t{64} << 10U;
  constexpr std::size_t kFewest = 4;
  for (const LabelForm form :
       {LabelForm::rank_in_brackets, LabelForm::host_and_bar, LabelForm::host_and_colon}) {
    std::string_view rest = bytes.substr(0, kLooked);
    std::size_t lines = 0;
    std::size_t labelled = 0;
    std::set<std::pair<Rank, std::string_view>> labels;
    while (!rest.empty()) {
      const std::string_view line = take_until(rest, '\n');
      if (trimmed(line).empty() || line == "\r") continue;
      ++lines;
      const auto label = parse_form(after_timestamp(line), form);
      if (!label) continue;
      ++labelled;
      labels.emplace(label->rank, label->host);
    }
    if (labelled >= kFewest && 10 * labelled >= 9 * lines && 3 * labels.size() <= labelled)
      return form;
  }
  return LabelForm::none;
}

std::optional<LabelledLine> parse_label(std::string_view line, LabelForm form) {
  if (auto of_form = parse_form(line, form)) return of_form;
  if (auto of_pod = parse_pod_label(line)) return of_pod;
  const std::size_t first = line.find_first_not_of(' ');
  if (first == kNpos) return std::nullopt;
  line.remove_prefix(first);
  // mpirun --timestamp-output writes the time in front: "Fri Aug 11 12:31:45 2023[1,3]<stdout>:".
  constexpr std::size_t kLongestLabel = 128;
  constexpr std::size_t kLongestTime = 40;
  const std::size_t close = line.substr(0, kLongestLabel).find("]<std");
  const std::size_t open = close == kNpos ? kNpos : line.rfind('[', close);
  if (open != kNpos && open <= kLongestTime) line.remove_prefix(open);
  const bool of_mpirun = line.front() == '[';
  if (of_mpirun) {
    if (close == kNpos || open == kNpos) return std::nullopt;
    return parse_mpirun_label(line);
  }
  const std::size_t colon = line.find(": ");
  constexpr std::size_t kMostDigits = 6;
  if (colon == 0 || colon == kNpos || colon > kMostDigits) return std::nullopt;
  if (!std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(colon), is_digit))
    return std::nullopt;
  const std::vector<Rank> rank = tasks_in(line.substr(0, colon));
  if (rank.size() != 1) return std::nullopt;
  return LabelledLine{rank[0], {}, line.substr(colon + 2)};
}

bool is_docker_log(std::string_view bytes) { return bytes.starts_with(kDockerLog); }

std::string_view plain_text(std::string_view line, std::string& buffer) {
  if (line.starts_with(kDockerLog)) {
    unpack_docker_line(line, buffer);
    return buffer;
  }
  if (line.find('\x1b') != kNpos) {
    buffer = without_escapes(line);
    line = buffer;
  }
  return after_timestamp(line);
}

std::string without_escapes(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t escape = std::min(text.find('\x1b', at), text.size());
    out += text.substr(at, escape - at);
    at = escape == text.size() ? escape : end_of_escape(text, escape);
  }
  return out;
}

std::string_view after_rank(std::string_view line) {
  const std::size_t at = line.find("[rank");
  const std::size_t end = line.find("]:", at == kNpos ? 0 : at);
  if (at == kNpos || end == kNpos) return line;
  line.remove_prefix(end + 2);
  if (line.starts_with(' ')) line.remove_prefix(1);
  return line;
}

void TracebackLabels::learn(std::string_view line, std::size_t traceback) {
  // The corner of a box: the next lines do not repeat it.
  const std::string_view label = line.substr(0, traceback);
  if (label.find_first_of("\xE2+") == kNpos) add(label);
}

void TracebackLabels::add(std::string_view label) {
  constexpr std::size_t kMostLabels = 1024;
  if (label.empty() || label.size() > kLongest || labels_.size() == kMostLabels) return;
  labels_.emplace(label);
}

void TracebackLabels::remove(std::string_view label) {
  if (const auto known = labels_.find(label); known != labels_.end()) labels_.erase(known);
}

// The greatest label that is not greater than the line begins it, if any does: of labels of which
// one begins another, the longer one is greater.
std::string_view TracebackLabels::of(std::string_view line) const {
  const auto after = labels_.upper_bound(line);
  if (after == labels_.begin()) return {};
  const std::string& label = *std::prev(after);
  return line.starts_with(label) ? line.substr(0, label.size()) : std::string_view();
}

}  // namespace lockstep::trace
