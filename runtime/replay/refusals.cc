#include "runtime/replay/refusals.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "runtime/replay/program.h"
#include "trace/formats/text/text_trace.h"

namespace lockstep::runtime {

namespace {

std::string count(std::uint64_t n, std::string_view of) { return plural(n, of); }

class Refusals {
 public:
  explicit Refusals(const trace::Run& run) : run_(run) {}

  std::optional<Error> find() {
    check_ranks();
    for (const trace::RankTrace& trace : run_.ranks) {
      if (error_) break;
      check_trace(trace);
    }
    return std::move(error_);
  }

 private:
  void refuse(std::string message, std::string file, std::string fix) {
    if (!error_) error_ = Error{std::move(message), {std::move(file)}, std::move(fix)};
  }

  void check_ranks() {
    if (run_.world_size > kMaxReplayRanks) {
      refuse(
          fmt::format("{} would be as many processes on one machine; the limit is {}",
                      count(static_cast<std::uint64_t>(run_.world_size), "rank"), kMaxReplayRanks),
          "", "`lockstep verify` judges traces of any number of ranks");
    }
    std::vector<std::int32_t> missing;
    for (std::int32_t r = 0; r < run_.world_size && missing.size() < kMaxReplayRanks; ++r) {
      if (run_.find(trace::Rank(r)) == nullptr) missing.push_back(r);
    }
    if (!missing.empty()) {
      refuse(fmt::format("{}{} left no trace, and no other trace shows what {} called",
                         missing.size() == 1 ? "rank " : "ranks ", ranges(missing),
                         missing.size() == 1 ? "it" : "they"),
             "", "bring the traces of all ranks together");
    }
  }

  void check_trace(const trace::RankTrace& trace) {
    const std::string who = fmt::format("rank {}", trace.rank.value);
    if (trace.semantics == trace::Semantics::mpi) {
      return refuse("an MPI program's calls are not those of c10d, which a replay makes",
                    trace.source, "`lockstep verify` judges MPI traces");
    }
    // A rank that died may have died while writing its last record.
    const bool died_writing =
        trace.damaged_count == 1 && trace.damaged.front().message == trace::kCutOffLine;
    if (trace.open_ended || (trace.damaged_count > 0 && !died_writing)) {
      return refuse(fmt::format("the trace of {} is damaged: not all that it called is known", who),
                    trace.source, "bring a whole trace; `lockstep verify` judges what is there");
    }
    for (const trace::RankTrace::Membership& group : trace.groups) {
      if (group.ranks.distinct()) continue;
      return refuse(
          fmt::format("group {} has a rank twice", printable(run_.tables.str(group.group))),
          trace.source, "name each member once");
    }
    for (const trace::Call& call : trace.calls) {
      if (error_) return;
      check_call(trace, call);
    }
  }

  void check_call(const trace::RankTrace& trace, const trace::Call& call) {
    const trace::Signature& signature = run_.tables.signatures[call.signature];
    const auto refuse_call = [&](const std::string& why, std::string fix) {
      refuse(
          fmt::format("rank {}, {}: {}", trace.rank.value, call_in_words(run_.tables, call), why),
          trace.source, std::move(fix));
    };
    switch (signature.op) {
      case trace::Op::other:
      case trace::Op::scan:
      case trace::Op::exscan:
      case trace::Op::probe:
      case trace::Op::finalize:
        return refuse_call("Gloo has no such operation", "leave such calls out of the recording");
      default:
        break;
    }
    const trace::RankList* const members = find_members(trace, call.group);
    if (members == nullptr) {
      return refuse_call("the members of this group were not recorded",
                         "docs/formats.md says what each format records");
    }
    if (!members->contains(trace.rank)) {
      return refuse_call("the rank is not a member of this group by its own trace", "");
    }
    if (signature.root != trace::kNone && !members->contains(trace::Rank(signature.root))) {
      return refuse_call("its root is not a member of the group", "");
    }
    const bool names_peer = signature.op == trace::Op::send || signature.op == trace::Op::recv;
    if (names_peer && (call.peer.value < 0 || !members->contains(call.peer))) {
      return refuse_call("its other side was not recorded, or is not a member of the group", "");
    }
    if (names_peer && call.peer == trace.rank) {
      return refuse_call("Gloo has no messages of a rank to itself", "");
    }
  }

  const trace::Run& run_;
  std::optional<Error> error_;
};

}  // namespace

std::string call_in_words(const trace::Tables& tables, const trace::Call& call) {
  const trace::Signature& signature = tables.signatures[call.signature];
  const std::string op = signature.op == trace::Op::other
                             ? tables.str(signature.other_op)
                             : std::string(trace::op_name(signature.op));
  return fmt::format("call {}, {} in group {}", call.id, printable(op),
                     printable(tables.str(call.group)));
}

std::optional<Error> find_refusal(const trace::Run& run) { return Refusals(run).find(); }

std::optional<Error> find_nccl_refusal(const trace::Run& program) {
  struct Message {
    const trace::RankTrace* trace;
    const trace::Call* call;
  };
  struct Messages {
    std::vector<Message> sends, receives;
  };
  std::map<std::tuple<trace::GroupId, trace::Rank, trace::Rank>, Messages> by_pair;
  const auto refuse = [&](const Message& of, const std::string& why) {
    return Error{fmt::format("rank {}, {}: {}", of.trace->rank.value,
                             call_in_words(program.tables, *of.call), why),
                 {of.trace->source},
                 "backend: gloo"};
  };
  for (const trace::RankTrace& trace : program.ranks) {
    for (const trace::Call& call : trace.calls) {
      switch (program.tables.op(call)) {
        case trace::Op::recv_any:
          return refuse({&trace, &call}, "NCCL has no receive from any source");
        case trace::Op::send:
          by_pair[{call.group, trace.rank, call.peer}].sends.push_back({&trace, &call});
          break;
        case trace::Op::recv:
          by_pair[{call.group, call.peer, trace.rank}].receives.push_back({&trace, &call});
          break;
        default:
          break;
      }
    }
  }
  // Without tags the n-th send of a pair matches its n-th receive.
  for (const auto& [pair, messages] : by_pair) {
    const std::size_t both = std::min(messages.sends.size(), messages.receives.size());
    for (std::size_t i = 0; i < both; ++i) {
      const std::int32_t sent = messages.sends[i].call->ptag;
      const std::int32_t received = messages.receives[i].call->ptag;
      if (sent == received || sent == trace::kNoPeerTag || received == trace::kNoPeerTag) continue;
      return refuse(
          messages.receives[i],
          fmt::format("NCCL has no tags: it would receive the message with tag {} for the one with "
                      "tag {}",
                      sent, received));
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::runtime
