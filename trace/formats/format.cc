// The table of formats.

#include "trace/formats/format.h"

#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include "trace/formats/digest/digest.h"
#include "trace/formats/ring/reader.h"
#include "trace/formats/text/text_trace.h"
#include "trace/groups.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

// Richest first: choose_calls (trace/load.cc) and recognise() take the first that fits. The
// messages of TORCH_DISTRIBUTED_DEBUG=DETAIL hold only one call of each rank, but the one that
// ended the job, so they come before the dumps.
const std::array kFormats = {
    ring_format(),
    text_format(),
    digest_format(),
    detail_log_format(),
    flight_recorder_format(),
    clog_format(),
    nccl_log_format(),
    kineto_format(),
    execution_trace_format(),
    chakra_format(),
    nsys_format(),
    watchdog_log_format(),
};

}  // namespace

std::span<const Format> all_formats() { return kFormats; }

const Format* recognise(std::string_view bytes) {
  for (const Format& format : kFormats) {
    if (format.recognises(bytes)) return &format;
  }
  return nullptr;
}

const Format* format_named(std::string_view name) {
  for (const Format& format : kFormats) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

std::optional<Rank> rank_in_name(std::string_view file_name) {
  constexpr std::string_view kDigits = "0123456789";
  const auto number_at = [&](std::size_t first) -> std::optional<Rank> {
    std::int32_t value = 0;
    const auto [end, error] =
        std::from_chars(file_name.data() + first, file_name.data() + file_name.size(), value);
    if (error != std::errc() || !is_possible_rank(value, kMaxWorldSize)) return std::nullopt;
    return Rank(value);
  };
  // "rank" before a number counts more than the last number: "host7_rank3_20240501.log".
  for (std::size_t at = file_name.rfind("rank"); at != std::string_view::npos;
       at = at == 0 ? std::string_view::npos : file_name.rfind("rank", at - 1)) {
    std::size_t first = at + 4;
    if (first < file_name.size() &&
        std::string_view("_-.").find(file_name[first]) != std::string_view::npos)
      ++first;
    if (first < file_name.size() && kDigits.find(file_name[first]) != std::string_view::npos)
      return number_at(first);
  }
  const std::size_t last = file_name.find_last_of(kDigits);
  if (last == std::string_view::npos) return std::nullopt;
  const std::size_t before = file_name.find_last_not_of(kDigits, last);
  const std::size_t first = before == std::string_view::npos ? 0 : before + 1;
  // The last of three numbers with dots is part of a version or an address: "1.0.2-chakra.0.0.4".
  constexpr std::size_t kNowhere = std::string_view::npos;
  const auto dotted_before = [&](std::size_t at) -> std::size_t {
    if (at < 2 || file_name[at - 1] != '.') return kNowhere;
    const std::size_t end = file_name.find_last_not_of(kDigits, at - 2);
    const std::size_t begin = end == kNowhere ? 0 : end + 1;
    return begin == at - 1 ? kNowhere : begin;
  };
  const std::size_t second = dotted_before(first);
  if (second != kNowhere && dotted_before(second) != kNowhere) return std::nullopt;
  // A digit inside a word belongs to the word: "hf_GPT2_et.json", "resnet_2gpu_et.json". At the end
  // of the name it is a rank: "dump3", "r3.log.gz".
  const auto is_letter = [&](std::size_t at) {
    return at < file_name.size() && std::isalpha(static_cast<unsigned char>(file_name[at])) != 0;
  };
  const bool ends_name = last + 1 == file_name.size() || file_name[last + 1] == '.';
  const bool in_word = is_letter(last + 1) || (first > 0 && is_letter(first - 1) && !ends_name);
  return in_word ? std::nullopt : number_at(first);
}

namespace {

// A list of one trace.
Result<std::vector<RankTrace>> one(Result<RankTrace> trace) {
  if (!trace) return trace.error();
  std::vector<RankTrace> out;
  out.push_back(std::move(*trace));
  return out;
}

// Whether the first line begins with `{"header":1,…`. Also true for a file that is cut off within
// the key: `{"hea`.
bool looks_like_text(std::string_view bytes) {
  if (bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);  // an editor's byte order mark
  const auto skip_blanks = [&] {
    const std::size_t first = bytes.find_first_not_of(" \t\r\n");
    bytes.remove_prefix(first == std::string_view::npos ? bytes.size() : first);
  };
  skip_blanks();
  if (!bytes.starts_with('{')) return false;
  bytes.remove_prefix(1);
  skip_blanks();
  constexpr std::string_view kKey = "\"header\"";
  return bytes.substr(0, kKey.size()) == kKey.substr(0, bytes.size());
}

// Links ring and text traces. A recorder that sees NCCL's calls alone knows neither the members of
// communicators nor any wait. If it saw the rank hang, its trace is a snapshot of a process that
// still exists.
void link_own(std::span<RankTrace> traces, Tables& tables) {
  for (RankTrace& trace : traces)
    if (has_unlinked(trace, tables)) trace.snapshot = trace.end == End::hung;
  link_communicators(traces, tables);
}

}  // namespace

Format ring_format() {
  return {
      .name = "ring",
      .summary = "lockstep's ring files (*.ring)",
      .recognises = looks_like_ring_file,
      .read = [](const TraceFile& file,
                 Tables& tables) { return one(read_ring_trace(file.bytes, file.name, tables)); },
      .link = link_own};
}

Format text_format() {
  return {
      .name = "text",
      .summary = "lockstep's text form (*.trace.jsonl)",
      .recognises = looks_like_text,
      .read = [](const TraceFile& file,
                 Tables& tables) { return one(read_text_trace(file.bytes, file.name, tables)); },
      .link = link_own};
}

}  // namespace lockstep::trace
