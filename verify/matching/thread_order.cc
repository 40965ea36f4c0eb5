// Several threads of a rank that issue calls in one group. Nothing orders them, so that the calls
// of the group come in another order on each rank, and in another one in each run:
//
//   rank 0   thread 0: reduce  reduce            rank 1   thread 0: reduce      reduce
//            thread 1:        log    log                  thread 1:         log        log
//
// Thread by thread the ranks agree. That tells a race from a call that a rank left out or moved.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/matching/matching.h"

namespace lockstep::verify {

namespace {

// More threads than this do not share a group; each is compared with each.
constexpr std::size_t kMaxThreads = 16;

// A rank's collectives in a group, by the thread that issued them.
struct Lanes {
  std::uint32_t rank = 0;                         // index
  std::vector<std::size_t> lane;                  // by index in the stream
  std::vector<std::vector<std::uint32_t>> calls;  // by lane: indexes in the stream
};

Lanes lanes_of(const trace::Run& run, const Stream& stream) {
  Lanes out;
  out.rank = stream.rank_index;
  std::map<std::uint16_t, std::size_t> known;
  for (std::uint32_t i = 0; i < stream.calls.size(); ++i) {
    const std::uint16_t thread = run.ranks[stream.rank_index].calls[stream.calls[i]].thread;
    const auto [entry, is_new] = known.emplace(thread, out.calls.size());
    if (is_new) out.calls.emplace_back();
    out.calls[entry->second].push_back(i);
    out.lane.push_back(entry->second);
  }
  return out;
}

// Whether some thread of the rank issued a call while another one waited in a call: one that hands
// its work to others and waits for their end does not.
bool works_concurrently(const trace::RankTrace& trace) {
  std::vector<bool> is_open(trace.calls.size());
  std::map<std::uint16_t, std::size_t> open;  // by the thread that issued them
  std::size_t all_open = 0;
  const auto set = [&](std::uint32_t c, bool to) {
    if (is_open[c] == to) return;
    is_open[c] = to;
    std::size_t& own = open[trace.calls[c].thread];
    own = to ? own + 1 : own - 1;
    all_open = to ? all_open + 1 : all_open - 1;
  };
  for (const trace::Event& event : trace.events) {
    switch (event.kind) {
      case trace::EventKind::issue:
        if (all_open > open[trace.calls[event.index].thread]) return true;
        if (!trace.calls[event.index].has(trace::kAsync)) set(event.index, true);
        break;
      case trace::EventKind::wait:
        set(event.index, true);
        break;
      case trace::EventKind::complete:
      case trace::EventKind::waited:
        set(event.index, false);
        break;
      default:
        break;
    }
  }
  return false;
}

class ThreadOrder {
 public:
  ThreadOrder(const Context& context, std::size_t group) : context_(context), group_(group) {}

  std::optional<Cause> find() {
    const std::vector<Stream>& streams = context_.groups[group_].streams;
    std::vector<const Stream*> shared;  // by threads of their ranks
    for (const Stream& stream : streams) {
      if (!context_.run.ranks[stream.rank_index].occurs.threads) continue;
      shared.push_back(&stream);
    }
    if (shared.size() < 2) return std::nullopt;
    const Lanes first = lanes_of(context_.run, *shared[0]);
    if (first.calls.size() < 2 || first.calls.size() > kMaxThreads) return std::nullopt;
    std::optional<Found> found;
    RankIndices concerned{first.rank};
    for (std::size_t i = 1; i < shared.size(); ++i) {
      const Lanes other = lanes_of(context_.run, *shared[i]);
      const auto at = first_difference(*shared[0], first, *shared[i], other);
      if (!at) continue;
      concerned.push_back(other.rank);
      if (!found || *at < found->at) found = Found{*at, shared[i]};
    }
    const auto concurrent = [&](std::uint32_t r) {
      return works_concurrently(context_.run.ranks[r]);
    };
    if (!found || std::none_of(concerned.begin(), concerned.end(), concurrent)) return std::nullopt;
    return explain(*shared[0], *found->other, found->at, concerned);
  }

 private:
  struct Found {
    std::size_t at = 0;  // index in the streams
    const Stream* other = nullptr;
  };

  const trace::Call& call(const Stream& stream, std::size_t i) const {
    return context_.run.ranks[stream.rank_index].calls[stream.calls[i]];
  }

  bool agree(const trace::Call& a, const trace::Call& b) const {
    const bool same_line = a.at == b.at || a.at.value == 0 || b.at.value == 0;
    const bool same_names = a.what == b.what || a.what.value == 0 || b.what.value == 0;
    return same_line && same_names && context_.agreement.agree(a.signature, b.signature);
  }

  // Whether two threads issued the same, as far as both got.
  bool agree(const Stream& a, const std::vector<std::uint32_t>& lane_a, const Stream& b,
             const std::vector<std::uint32_t>& lane_b) const {
    for (std::size_t i = 0; i < lane_a.size() && i < lane_b.size(); ++i)
      if (!agree(call(a, lane_a[i]), call(b, lane_b[i]))) return false;
    return true;
  }

  // The first call at which the group got the calls of different threads, where the two ranks agree
  // thread by thread.
  std::optional<std::size_t> first_difference(const Stream& a, const Lanes& of_a, const Stream& b,
                                              const Lanes& of_b) const {
    const std::size_t n = of_a.calls.size();
    if (of_b.calls.size() != n) return std::nullopt;
    std::vector<std::size_t> pair(n, n);  // the lane of b that is the same thread as one of a
    std::vector<bool> taken(n);
    for (std::size_t lane = 0; lane < n; ++lane) {
      for (std::size_t other = 0; other < n && pair[lane] == n; ++other) {
        if (taken[other] || !agree(a, of_a.calls[lane], b, of_b.calls[other])) continue;
        pair[lane] = other;
        taken[other] = true;
      }
      if (pair[lane] == n) return std::nullopt;
    }
    for (std::size_t i = 0; i < a.calls.size() && i < b.calls.size(); ++i)
      if (pair[of_a.lane[i]] != of_b.lane[i] && !agree(call(a, i), call(b, i))) return i;
    return std::nullopt;
  }

  Cause explain(const Stream& a, const Stream& b, std::size_t at,
                const RankIndices& concerned) const {
    const CallRef one{a.rank_index, a.calls[at]};
    const CallRef other{b.rank_index, b.calls[at]};
    Cause cause;
    Finding& f = cause.finding = make_finding(RuleId::order_swap);
    const std::uint64_t seq = context_.groups[group_].first_seq + at;
    f.message = fmt::format(
        "several threads of each rank issue calls in {}, and nothing orders them: as {}, rank {} "
        "issued {}, and rank {} {}",
        context_.describe_group(one.rank, context_.groups[group_].group),
        context_.describe_location(one, seq), context_.run.ranks[one.rank].rank.value,
        context_.describe_call(one), context_.run.ranks[other.rank].rank.value,
        described_with_line(other));
    f.why =
        "Thread by thread the ranks issue the same calls. A group's calls are paired by their "
        "order, and which thread comes first is chance: no rank is at fault, and the next run may "
        "pass or fail elsewhere.";
    f.fix =
        "give each thread a process group of its own (new_group, made by all ranks in one order), "
        "or issue all calls of the group from one thread";
    f.group = context_.groups[group_].name;
    f.seq = seq;
    f.ranks = context_.ranks(concerned);
    f.evidence = {context_.evidence(one, context_.describe_call(one)),
                  context_.evidence(other, context_.describe_call(other))};
    set_fingerprint(f, "threads");
    cause.deviants = concerned;
    cause.group = group_;
    cause.seq = seq;
    cause.can_block =
        !context_.agreement.agree(context_.call(one).signature, context_.call(other).signature);
    return cause;
  }

  std::string described_with_line(CallRef ref) const {
    const std::string at = context_.run.tables.str(context_.call(ref).at);
    return at.empty() ? context_.describe_call(ref)
                      : fmt::format("{} ({})", context_.describe_call(ref), printable(at));
  }

  const Context& context_;
  const std::size_t group_;
};

}  // namespace

std::optional<Cause> check_thread_order(const Context& context, std::size_t group) {
  return context.groups[group].comparable ? ThreadOrder(context, group).find() : std::nullopt;
}

}  // namespace lockstep::verify
