#include "reports/findings/figures/matched_calls.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "verify/streams/streams.h"

namespace lockstep::reports {
namespace {

void match_collectives(const trace::Run& run, MatchedCalls& out) {
  for (const verify::GroupStreams& group : verify::group_streams(run)) {
    std::size_t longest = 0;
    for (const verify::Stream& stream : group.streams) {
      for (std::size_t i = 0; i < stream.calls.size(); ++i) {
        // The i-th calls of all members match: collectives of a group have one order.
        out.seq[stream.rank_index][stream.calls[i]] = group.first_seq + i;
        if (group.comparable)
          out.instance[stream.rank_index][stream.calls[i]] =
              out.count + static_cast<std::uint32_t>(i);
      }
      longest = std::max(longest, stream.calls.size());
    }
    if (group.comparable) out.count += static_cast<std::uint32_t>(longest);
  }
}

// The messages of one channel: the k-th send matches the k-th receive, whichever comes first in
// this loop.
struct Channel {
  std::vector<std::uint32_t> instances;
  std::size_t sent = 0, received = 0;
};
using ChannelKey = std::tuple<trace::GroupId, std::int32_t, std::int32_t, std::int32_t>;

void match_messages(const trace::Run& run, MatchedCalls& out) {
  std::map<ChannelKey, Channel> channels;
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    const trace::RankTrace& trace = run.ranks[r];
    for (std::size_t c = 0; c < trace.calls.size(); ++c) {
      const trace::Call& call = trace.calls[c];
      const trace::Op op = run.tables.op(call);
      // Any source (a negative peer) or any tag (-1): not matched.
      if ((op != trace::Op::send && op != trace::Op::recv) || call.peer.value < 0 ||
          call.ptag == -1)
        continue;
      const bool sends = op == trace::Op::send;
      const std::int32_t self = trace.rank.value;
      const std::int32_t from = sends ? self : call.peer.value;
      const std::int32_t to = sends ? call.peer.value : self;
      Channel& channel = channels[{call.group, from, to, call.ptag}];
      const std::size_t position = sends ? channel.sent++ : channel.received++;
      if (position == channel.instances.size()) channel.instances.push_back(out.count++);
      out.instance[r][c] = channel.instances[position];
    }
  }
}

}  // namespace

MatchedCalls match_calls(const trace::Run& run) {
  MatchedCalls out;
  for (const trace::RankTrace& trace : run.ranks) {
    out.instance.emplace_back(trace.calls.size(), MatchedCalls::kAlone);
    std::vector<std::uint64_t>& seq = out.seq.emplace_back();
    seq.reserve(trace.calls.size());
    for (const trace::Call& call : trace.calls) seq.push_back(call.seq);
  }
  match_collectives(run, out);
  match_messages(run, out);
  return out;
}

}  // namespace lockstep::reports
