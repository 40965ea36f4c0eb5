// What PyTorch's own analysis of Flight Recorder dumps prints (torchfrtrace, fr_trace.py, the debug
// server), where the dumps themselves are missing:
//
//   Not all ranks joining collective, sequence number: 5     before: "… collective 5 at entry 4"
//   group info: 0:default_pg
//   collective: nccl:all_reduce
//   missing ranks: {1}
//   expected ranks: {0, 1}
//   collective stack trace:
//    all_reduce at /x/torch/distributed/distributed_c10d.py:2696
//    <module> at /home/u/crash.py:44
//   Collective sequence number: 7 has errors
//   …
//   error msg: Culprit rank 1; Error type: COLLECTIVE_TYPE_MISMATCH, …
//
// Sources: pytorch tools/flight_recorder/components/{builder,types}.py, 2.5 to 2.11. A missing rank
// had a dump, and the call was not in it. In a mismatch the analysis takes the first rank's
// call for the right one, so its culprits may be all others: they are not named here.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "base/word_search.h"
#include "trace/evidence/evidence.h"
#include "trace/evidence/frames.h"
#include "trace/evidence/line_labels.h"
#include "trace/formats/log_lines.h"

namespace lockstep::trace {

namespace {

constexpr std::string_view kMissing = "Not all ranks joining collective";
constexpr std::string_view kErrors = " has errors";
constexpr std::string_view kSequence = "Collective sequence number: ";
constexpr std::string_view kMissingRanks = "missing ranks: ";

class AnalysisReader {
 public:
  explicit AnalysisReader(const TraceFile& file) : file_(file) {}

  FileEvidence read() {
    LogLines lines(file_.bytes);
    std::string buffer;
    while (const auto line = lines.next()) take(plain_text(*line, buffer), lines.number());
    end();
    return std::move(out_);
  }

 private:
  void take(std::string_view line, int number) {
    const std::size_t missing = line.find(kMissing);
    const std::size_t errors = line.find(kSequence);
    const bool has_errors = errors != kNpos && contains_text(line, kErrors);
    if (missing != kNpos || has_errors) {
      end();
      in_report_ = true;
      line_ = number;
      const std::string_view rest = line.substr(missing != kNpos ? missing : errors);
      call_ = number_after(rest, missing == kNpos ? kSequence : "sequence number: ");
      if (!call_) call_ = number_after(rest, "collective ");
      return;
    }
    if (!in_report_) return;
    const auto value = [&](std::string_view key) {
      const std::size_t at = line.find(key);
      return at == kNpos ? std::string_view()
                         : trimmed(line.substr(at + key.size())).substr(0, 200);
    };
    if (in_stack_) {
      in_stack_ = stack_.take(line) || (stack_.empty() && trimmed(line).empty());
    } else if (const auto group = value("group info: "); !group.empty()) {
      group_ = group.substr(group.find(':') + 1);  // "0:default_pg"
    } else if (const auto ranks = value(kMissingRanks); !ranks.empty()) {
      missing_ = listed_ranks(ranks);
    } else if (const auto operation = value("collective: "); !operation.empty()) {
      operation_ = operation.substr(operation.find(':') + 1);  // "nccl:all_reduce"
    } else if (const auto expected = value("expected ranks: "); expected.starts_with('{')) {
      expected_ = listed_ranks(expected);
    } else if (const auto error = value("error msg: "); !error.empty()) {
      error_ = error;
    } else if (contains_text(line, "collective stack trace:")) {
      in_stack_ = true;
    }
  }

  void end() {
    if (!std::exchange(in_report_, false)) return;
    const std::string call =
        fmt::format("{} (call {} of group {}){}", operation_.empty() ? "a collective" : operation_,
                    call_ ? std::to_string(*call_) : "?", group_.empty() ? "?" : group_,
                    stack_.empty() ? "" : fmt::format(" in {}", stack_.words()));
    const std::string missed =
        fmt::format("did not join {}; {} expected in it", call, plural(expected_.size(), "rank"));
    for (const Rank rank : missing_) {
      out_.add({.kind = RankNote::Kind::analysis,
                .rank = rank,
                .text = fmt::format("by torchfrtrace it {}", missed),
                .location = {file_.name, line_},
                .says = RankNote::Says::did_not_join,
                .content = missed});
      out_.world_size = std::max(out_.world_size, rank.value + 1);
    }
    for (const Rank rank : expected_) out_.world_size = std::max(out_.world_size, rank.value + 1);
    if (!error_.empty())
      out_.add(
          {.kind = RankNote::Kind::analysis,
           .text = fmt::format("by torchfrtrace ranks called differently in {}: {}", call, error_),
           .location = {file_.name, line_}});
    stack_ = {};
    call_.reset();
    missing_.clear();
    expected_.clear();
    in_stack_ = false;
    group_ = operation_ = error_ = "";
  }

  const TraceFile& file_;
  FileEvidence out_;
  bool in_report_ = false, in_stack_ = false;
  int line_ = 0;
  std::optional<std::int64_t> call_;
  std::vector<Rank> missing_, expected_;
  std::string group_, operation_, error_;
  CalledFrom stack_;
};

}  // namespace

EvidenceSource analysis_source() {
  return {.name = "analysis",
          .summary = "what torchfrtrace says of Flight Recorder dumps",
          .recognises =
              [](std::string_view bytes, std::string_view) {
                return sample_of(bytes).any([](std::string_view text) {
                  return (contains_text(text, kMissing) || contains_text(text, kSequence)) &&
                         (contains_text(text, kMissingRanks) || contains_text(text, "error msg: "));
                });
              },
          .read = [](const TraceFile& file) { return AnalysisReader(file).read(); }};
}

}  // namespace lockstep::trace
