// PyTorch's messages about mismatched collectives with TORCH_DISTRIBUTED_DEBUG=DETAIL, in a job's
// output:
//
//   [rank0]: RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running
//       collective: CollectiveFingerPrint(SequenceNumber=1, OpType=ALLREDUCE, TensorShape=[10],
//       TensorDtypes=Float, …), but Rank 1 is running collective: CollectiveFingerPrint(…
//
// Source: pytorch torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp (1.9 to 2.15). Each rank
// compares its call with those of all members and reports the first that differs. So each message
// has the calls of two ranks, and all messages together have those of every rank that reported.
// Ranks are group ranks; the message does not name the group, which is taken for the world.

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/formats/format.h"
#include "trace/formats/log_lines.h"
#include "trace/formats/torch_names.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

constexpr std::array<std::string_view, 3> kUnknownInDetailLog = {
    "all calls but those that did not fit together: not in the messages of DETAIL mode",
    "the group, and ranks that no message names: the group is taken as that of all ranks, whose "
    "number is the highest rank that is named",
    "reduce operations, roots and splits: not in the messages of DETAIL mode",
};

constexpr std::string_view kSign = "Detected mismatch between collectives on ranks";
constexpr std::string_view kFingerprint = " is running collective: CollectiveFingerPrint(";

struct LoggedFingerprint {
  std::int64_t seq = 0;
  std::int64_t counted = kNone;  // what the message says; older versions say nothing
  std::string op, dtype;
  std::optional<std::vector<std::int64_t>> shape;
  int line = 0;
};

// "SequenceNumber=1, OpType=ALLREDUCE, TensorShape=[10], TensorDtypes=Float, …"
std::optional<LoggedFingerprint> parse(std::string_view text) {
  LoggedFingerprint out;
  const auto seq = number_after(text, "SequenceNumber=");
  const std::string_view op = word_after(text, "OpType=");
  if (op.empty() || op.size() > 64) return std::nullopt;
  out.seq = seq && *seq > 0 && *seq < INT32_MAX ? *seq : 1;
  out.counted = seq.value_or(kNone);
  out.op = op;
  constexpr std::string_view kShape = "TensorShape=";
  const std::size_t begin = text.find(kShape);
  if (begin != kNpos) {
    const std::size_t end = text.find(']', begin);
    if (end == kNpos) return std::nullopt;
    out.shape = integers_in(text.substr(begin + kShape.size(), end + 1 - begin - kShape.size()));
    const bool sizes = out.shape && std::all_of(out.shape->begin(), out.shape->end(),
                                                [](std::int64_t n) { return n >= 0; });
    if (!sizes) out.shape.reset();
  }
  out.dtype = dtype_from_torch(word_after(text, "TensorDtypes=").substr(0, 64));
  return out;
}

class DetailLogReader {
 public:
  DetailLogReader(const TraceFile& file, Tables& tables) : file_(file), tables_(tables) {}

  Result<std::vector<RankTrace>> read() {
    LogLines lines(file_.bytes);
    while (const auto line = lines.next()) {
      if (line->find(kSign) != kNpos) take(*line, lines.number());
    }
    if (calls_.empty()) {
      return Error{"no whole message about mismatched collectives in this log",
                   {file_.name},
                   "PyTorch writes it with TORCH_DISTRIBUTED_DEBUG=DETAIL"};
    }
    const std::string only_numbers = differ_in_numbers_alone();
    std::vector<RankTrace> out;
    for (const auto& [rank, call] : calls_) {
      out.push_back(only_numbers.empty() ? trace_of(rank, call) : silent(rank, call));
      out.back().inconclusive = only_numbers;
    }
    for (const int line : damaged_) {
      out.front().add_damage("a message about mismatched collectives that is cut off", line);
    }
    return out;
  }

 private:
  void take(std::string_view line, int number) {
    std::size_t taken = 0;
    std::optional<std::int64_t> seq;
    for (std::size_t at = line.find(kFingerprint); at != kNpos;
         at = line.find(kFingerprint, at + 1)) {
      const std::size_t word = line.substr(0, at).rfind("Rank ");
      const std::size_t next = line.find(kFingerprint, at + 1);
      const auto rank =
          word == kNpos ? std::nullopt : number_after(line.substr(word, at - word), "Rank ");
      auto fingerprint = parse(line.substr(
          at + kFingerprint.size(), next == kNpos ? kNpos : next - at - kFingerprint.size()));
      if (!rank || !is_possible_rank(*rank, kMaxWorldSize) || !fingerprint) continue;
      ++taken;
      // PyTorch compared the two calls, so they are the same instance even if their numbers differ.
      if (!seq) seq = fingerprint->seq;
      fingerprint->seq = *seq;
      fingerprint->line = number;
      calls_.try_emplace(Rank(static_cast<std::int32_t>(*rank)), std::move(*fingerprint));
    }
    if (taken < 2) damaged_.push_back(number);
  }

  // What is said of ranks that make the same call, by PyTorch's numbers of it; empty where they
  // make different ones, or a number is not told. The ranks that the messages do not name are
  // there, too: all were compared.
  std::string differ_in_numbers_alone() const {
    const LoggedFingerprint& first = calls_.begin()->second;
    bool numbers_differ = false;
    std::vector<std::string> said;
    for (const auto& [rank, call] : calls_) {
      if (call.op != first.op || call.dtype != first.dtype || call.shape != first.shape) return "";
      if (call.counted == kNone) return "";
      numbers_differ |= call.counted != first.counted;
      said.push_back(fmt::format("{} by rank {}", call.counted, rank.value));
    }
    if (!numbers_differ) return "";
    return fmt::format(
        "PyTorch ended ranks that make the same call ({}) because it had counted different numbers "
        "of calls before it ({}): one of them made a call less or more before, or sent messages, "
        "or PyTorch counts wrongly (it does so before a barrier in DETAIL mode)",
        first.op, join_and(said, 4));
  }

  // The trace of a rank without its call.
  RankTrace silent(Rank rank, const LoggedFingerprint& fingerprint) const {
    RankTrace trace;
    trace.rank = rank;
    trace.world_size = rank.value + 1;
    trace.source = file_.name;
    trace.backend = "nccl";
    trace.first_number = 1;
    trace.dropped = static_cast<std::uint64_t>(fingerprint.seq - 1);
    return trace;
  }

  RankTrace trace_of(Rank rank, const LoggedFingerprint& fingerprint) {
    RankTrace trace = silent(rank, fingerprint);
    trace.end = End::hung;  // PyTorch raises before it issues the call
    Signature s;
    const std::optional<Op> op = op_from_torch(fingerprint.op);
    set_op(s, op, fingerprint.op, tables_);
    if (op != Op::barrier && fingerprint.shape) {
      s.in = tables_.int_lists.intern(flatten_shapes({*fingerprint.shape}));
    }
    if (op != Op::barrier && !fingerprint.dtype.empty()) {
      s.dtypes = tables_.make_names({fingerprint.dtype});
    }
    Call call;
    call.group = tables_.groups.intern("world");
    call.signature = tables_.make_signature(s);
    call.seq = static_cast<std::uint32_t>(fingerprint.seq - 1);
    // The program's source location is unknown; the log's line is the next best.
    call.at = tables_.strings.intern(fmt::format("{}:{}", file_.name, fingerprint.line));
    TraceBuilder builder(trace);
    const bool message = op && is_point_to_point(*op);
    builder.add_issue(call, message, kNoTime,
                      message ? TraceBuilder::Numbering::count : TraceBuilder::Numbering::recorded);
    builder.add_call_event(EventKind::wait, 0, kNoTime);
    builder.finish();
    return trace;
  }

  const TraceFile& file_;
  Tables& tables_;
  std::map<Rank, LoggedFingerprint> calls_;
  std::vector<int> damaged_;
};

Result<std::vector<RankTrace>> read_detail_log(const TraceFile& file, Tables& tables) {
  return DetailLogReader(file, tables).read();
}

// Sets the world size. Several files may have a trace of the same rank; loading keeps one of them.
void link_detail_log(std::span<RankTrace> traces, Tables& /*tables*/) {
  std::int32_t world = 0;
  for (const RankTrace& trace : traces) world = std::max(world, trace.world_size);
  for (RankTrace& trace : traces) trace.world_size = world;
}

bool is_detail_log(std::string_view bytes) {
  return sample_of(bytes).any([](std::string_view text) {
    const std::size_t at = text.find(kSign);
    return at != kNpos && text.find("CollectiveFingerPrint(", at) != kNpos;
  });
}

}  // namespace

Format detail_log_format() {
  return {.name = "detail-log",
          .summary = "job output with PyTorch's DETAIL messages on collectives",
          .recognises = is_detail_log,
          .read = read_detail_log,
          .link = link_detail_log,
          .unknown = kUnknownInDetailLog,
          .is_log = true};
}

}  // namespace lockstep::trace
