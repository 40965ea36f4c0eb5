#include "runtime/replay/disputes.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "runtime/replay/program.h"
#include "runtime/replay/tensors.h"

namespace lockstep::runtime {

namespace {

using CallOf = std::pair<std::size_t, std::size_t>;  // rank index and call

// The bytes of all tensors on one side of a call.
std::int64_t bytes_of(const std::vector<CallTensors::Shape>& shapes, const CallTensors& tensors) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    sum += tensor_bytes(shapes[i], tensors.type(i)).value_or(0);
  }
  return sum;
}

// Matches the calls of all ranks, and compares those that match.
class Disputes {
 public:
  explicit Disputes(const trace::Run& program) : program_(program) {}

  std::vector<std::vector<bool>> find() {
    for (const trace::RankTrace& trace : program_.ranks)
      out_.emplace_back(trace.calls.size(), false);
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) post_calls(r);
    for (const auto& [key, calls] : instances_) compare(calls);
    for (const auto& [key, channel] : channels_) {
      const std::size_t pairs = std::min(channel.sends.size(), channel.receives.size());
      for (std::size_t i = 0; i < pairs; ++i) {
        if (part_bytes(channel.sends[i]) == part_bytes(channel.receives[i])) continue;
        dispute(channel.sends[i]);
        dispute(channel.receives[i]);
      }
    }
    return std::move(out_);
  }

 private:
  // Messages from one rank to another under one tag; they match in the order of the program.
  struct Channel {
    std::vector<CallOf> sends, receives;
  };

  const trace::Call& call(CallOf of) const { return program_.ranks[of.first].calls[of.second]; }
  const trace::Signature& signature(CallOf of) const {
    return program_.tables.signatures[call(of).signature];
  }
  void dispute(CallOf of) { out_[of.first][of.second] = true; }

  void post_calls(std::size_t r) {
    const trace::RankTrace& trace = program_.ranks[r];
    for (std::size_t c = 0; c < trace.calls.size(); ++c) {
      const trace::Call& k = trace.calls[c];
      const trace::Op op = signature({r, c}).op;
      if (!trace::is_point_to_point(op)) {
        // Distinguishes groups of the same name: they have no rank in common.
        const trace::Rank first = members_of(trace, k.group).lowest();
        instances_[{k.group.value, first.value, k.seq}].emplace_back(r, c);
      } else if (op == trace::Op::send) {
        channels_[{k.group.value, trace.rank.value, k.peer.value, k.ptag}].sends.emplace_back(r, c);
      } else if (op == trace::Op::recv) {
        channels_[{k.group.value, k.peer.value, trace.rank.value, k.ptag}].receives.emplace_back(r,
                                                                                                 c);
      }
    }
  }

  // The bytes of one rank's part, which must be the same on all members.
  std::int64_t part_bytes(CallOf of) const {
    const trace::RankTrace& trace = program_.ranks[of.first];
    const trace::Signature& s = signature(of);
    const CallTensors tensors =
        tensors_of(program_.tables, call(of), members_of(trace, call(of).group).size(),
                   s.root == trace.rank.value);
    switch (s.op) {
      case trace::Op::reduce_scatter:
      case trace::Op::reduce_scatter_tensor:
      case trace::Op::scatter:
      case trace::Op::recv:
      case trace::Op::recv_any:
        return bytes_of(tensors.out, tensors);
      case trace::Op::all_to_all:
      case trace::Op::all_to_all_single:
        return 0;  // sizes differ from pair to pair; splits_fit() compares them
      default:
        return bytes_of(tensors.in, tensors);
    }
  }

  // The members' calls of one collective. Where they do not agree, all are disputed: who is right
  // is not asked.
  void compare(const std::vector<CallOf>& calls) {
    const auto agree = [&](CallOf a, CallOf b) {
      const trace::Signature& x = signature(a);
      const trace::Signature& y = signature(b);
      return x.op == y.op && x.root == y.root && x.dtypes == y.dtypes &&
             part_bytes(a) == part_bytes(b);
    };
    const bool one = std::all_of(calls.begin(), calls.end(),
                                 [&](CallOf other) { return agree(calls.front(), other); });
    if (one && splits_fit(calls)) return;
    for (const CallOf& of : calls) dispute(of);
  }

  // One member of an all-to-all: the rows that it sends to each group rank, and receives from it.
  struct Rows {
    // Its own group rank; after the others' if the first member's list does not contain it.
    std::size_t group_rank = 0;
    trace::IntList in, out;
  };
  Rows rows_of(CallOf of, const trace::RankList& members) const {
    const trace::Signature& s = signature(of);
    const CallTensors tensors = tensors_of(program_.tables, call(of), members.size(), false);
    // Without splits the first dimension is divided equally among the members.
    const auto side = [&](trace::IntListId splits, const std::vector<CallTensors::Shape>& shapes) {
      trace::IntList rows = program_.tables.int_lists[splits];
      const bool known = !shapes.empty() && !shapes.front().empty();
      rows.resize(std::max(rows.size(), members.size() + 1),
                  known ? shapes.front().front() / static_cast<std::int64_t>(members.size()) : 1);
      return rows;
    };
    const trace::Rank own = program_.ranks[of.first].rank;
    const auto group_rank = std::find(members.begin(), members.end(), own) - members.begin();
    return {static_cast<std::size_t>(group_rank), side(s.splits_in, tensors.in),
            side(s.splits_out, tensors.out)};
  }

  // Whether each rank sends another what that one expects to receive.
  bool splits_fit(const std::vector<CallOf>& calls) const {
    if (signature(calls.front()).op != trace::Op::all_to_all_single) return true;
    const CallOf first = calls.front();
    const trace::RankList& members = members_of(program_.ranks[first.first], call(first).group);
    std::vector<Rows> all;
    for (const CallOf& of : calls) all.push_back(rows_of(of, members));
    for (const Rows& a : all) {
      for (const Rows& b : all) {
        if (a.in[b.group_rank] != b.out[a.group_rank]) return false;
      }
    }
    return true;
  }

  const trace::Run& program_;
  std::vector<std::vector<bool>> out_;
  // By group, its lowest member, and the number of the call in the group.
  std::map<std::tuple<std::uint32_t, std::int32_t, std::uint32_t>, std::vector<CallOf>> instances_;
  // By group, sender, receiver and tag.
  std::map<std::tuple<std::uint32_t, std::int32_t, std::int32_t, std::int32_t>, Channel> channels_;
};

}  // namespace

std::vector<std::vector<bool>> find_disputes(const trace::Run& program) {
  return Disputes(program).find();
}

std::vector<std::vector<bool>> find_disputed_groups(const trace::Run& program) {
  std::map<trace::GroupId, std::vector<const trace::RankList*>> lists;
  for (const trace::RankTrace& trace : program.ranks) {
    for (const auto& group : trace.groups) lists[group.group].push_back(&group.ranks);
  }
  const auto disputed = [&](trace::GroupId group, const trace::RankList& ranks) {
    const auto& others = lists[group];
    return std::any_of(others.begin(), others.end(), [&](const trace::RankList* other) {
      return *other != ranks && std::any_of(other->begin(), other->end(),
                                            [&](trace::Rank r) { return ranks.contains(r); });
    });
  };
  std::vector<std::vector<bool>> out;
  for (const trace::RankTrace& trace : program.ranks) {
    std::vector<bool>& of_rank = out.emplace_back();
    for (const auto& group : trace.groups) of_rank.push_back(disputed(group.group, group.ranks));
  }
  return out;
}

}  // namespace lockstep::runtime
