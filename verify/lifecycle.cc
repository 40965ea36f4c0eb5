#include "verify/lifecycle.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/formats/ring/ring_file.h"

namespace lockstep::verify {

namespace {

bool waits(const trace::Call& call) {
  return call.has(trace::kWaitBegan) || call.has(trace::kWaitEnded);
}

// The calls of a group for which some member waited.
struct Waits {
  std::vector<bool> waited;  // by index in the streams
  bool any_waited = false;
  bool any_left = false;  // some asynchronous call that its rank did not wait for
};

Waits waits_in(const trace::Run& run, const GroupStreams& group) {
  Waits out;
  for (const Stream& stream : group.streams) {
    out.waited.resize(std::max(out.waited.size(), stream.calls.size()));
    const std::vector<trace::Call>& calls = run.ranks[stream.rank_index].calls;
    for (std::size_t m = 0; m < stream.calls.size(); ++m) {
      const trace::Call& call = calls[stream.calls[m]];
      if (waits(call)) {
        out.waited[m] = out.any_waited = true;
      } else {
        out.any_left |= call.has(trace::kAsync);
      }
    }
  }
  return out;
}

// Whether the rank ended cleanly, or at least reached MPI_Finalize.
bool reached_its_end(const Context& context, const trace::RankTrace& trace) {
  if (trace.end == trace::End::clean) return true;
  return !trace.calls.empty() && context.run.tables.op(trace.calls.back()) == trace::Op::finalize;
}

// Calls from one source location with the same defect, which a loop repeats on every rank: one
// finding.
struct CallSite {
  static constexpr std::size_t kEvidenceShown = 4;

  CallRef first;
  std::vector<std::uint32_t> ranks;  // rank indices, ascending
  std::vector<Evidence> evidence;
  std::uint64_t count = 0;

  // Counts a call; call it with ascending ranks. True where the caller should add evidence: for the
  // first call of each of the first ranks.
  bool add(CallRef call) {
    if (count++ == 0) first = call;
    if (!ranks.empty() && ranks.back() == call.rank) return false;
    ranks.push_back(call.rank);
    return evidence.size() < kEvidenceShown;
  }
};

// A cause at the site's first call, complete except for its message; it blocks nobody. O(ranks).
Cause cause_at(const Context& context, RuleId rule, CallSite site) {
  const trace::Call& call = context.call(site.first);
  Cause cause;
  cause.finding = make_finding(rule);
  Finding& f = cause.finding;
  cause.can_block = false;
  cause.seq = call.seq;
  f.group = printable(context.run.tables.str(call.group));
  f.seq = call.seq;
  f.culprits = f.ranks = context.ranks(site.ranks);
  if (call.step != trace::kNone) f.step = cause.step = call.step;
  f.what = context.run.tables.names(call.what);
  f.evidence = std::move(site.evidence);
  set_fingerprint(f, trace::describe(context.run.tables, call.signature));
  cause.deviants = std::move(site.ranks);
  return cause;
}

// By group, sequence number and message. Sites are collected in the order of interned ids, which
// may differ between runs of this program.
void sort_by_location(std::vector<Cause>& causes) {
  std::sort(causes.begin(), causes.end(), [](const Cause& a, const Cause& b) {
    return std::tie(a.finding.group, a.seq, a.finding.message) <
           std::tie(b.finding.group, b.seq, b.finding.message);
  });
}

// MPI: finds requests that were never waited for, by call and source location, so that a loop is
// one finding.
std::vector<Cause> check_requests(const Context& context) {
  std::map<std::tuple<trace::GroupId, trace::SignatureId, trace::StringId>, CallSite> forgotten;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    const trace::RankTrace& trace = context.run.ranks[r];
    if (!reached_its_end(context, trace)) continue;
    for (std::uint32_t c = 0; c < trace.calls.size(); ++c) {
      const trace::Call& call = trace.calls[c];
      if (!call.has(trace::kAsync) || waits(call) || call.has(trace::kCompleted)) continue;
      CallSite& site = forgotten[{call.group, call.signature, call.at}];
      if (site.add({r, c})) site.evidence.push_back(context.evidence({r, c}, "no wait for it"));
    }
  }
  std::vector<Cause> out;
  for (auto& [key, found] : forgotten) {
    std::string message =
        fmt::format("{} issued {} ({}) and never waited for it, nor freed its request",
                    context.describe_ranks(found.ranks), context.describe_call(found.first),
                    context.describe_location(found.first, context.call(found.first).seq));
    if (found.count > found.ranks.size()) {
      message += fmt::format(" ({} in all)", plural(found.count, "such call"));
    }
    out.push_back(cause_at(context, RuleId::never_waited, std::move(found)));
    Finding& f = out.back().finding;
    f.severity = Severity::error;  // MPI requires it
    f.message = std::move(message);
    f.fix = "complete the request with MPI_Wait (or free it) before MPI_Finalize";
  }
  sort_by_location(out);
  return out;
}

// c10d: the calls of one group that ranks which ended never waited for, although peers did.
struct Unwaited {
  std::vector<std::uint32_t> ranks;
  std::uint64_t calls = 0;
  CallRef first;
  std::size_t instance = 0;  // of the first
};

Unwaited unwaited_in(const Context& context, const GroupStreams& group) {
  if (std::none_of(group.streams.begin(), group.streams.end(),
                   [&](const Stream& s) { return context.run.ranks[s.rank_index].occurs.waits; })) {
    return {};
  }
  const Waits waits_of_all = waits_in(context.run, group);
  Unwaited out;
  if (!waits_of_all.any_waited || !waits_of_all.any_left) return out;
  for (const Stream& stream : group.streams) {
    const trace::RankTrace& trace = context.run.ranks[stream.rank_index];
    if (trace.end != trace::End::clean) continue;
    const std::uint64_t before = out.calls;
    for (std::size_t m = 0; m < stream.calls.size(); ++m) {
      const trace::Call& call = trace.calls[stream.calls[m]];
      if (!call.has(trace::kAsync) || waits(call) || !waits_of_all.waited[m]) continue;
      const std::string& tag = context.run.tables.str(call.tag);
      if (tag == trace::ring::kJoinTag || tag == trace::ring::kFunctionalTag) continue;
      // Lockstep's own recorder over NCCL takes a host that reads a value for one that waits for
      // the calls that are open just then. A rank without a wait for a completed call had it
      // completed before.
      if (trace.ends_of_waits && context.semantics == CallSemantics::nccl &&
          call.has(trace::kCompleted))
        continue;
      if (out.calls++ > 0) continue;
      out.first = {stream.rank_index, stream.calls[m]};
      out.instance = m;
    }
    if (out.calls > before) out.ranks.push_back(stream.rank_index);
  }
  return out;
}

Cause explain_unwaited(const Context& context, const Unwaited& unwaited, std::size_t g) {
  const GroupStreams& group = context.groups[g];
  Cause cause;
  cause.finding = make_finding(RuleId::never_waited);
  Finding& f = cause.finding;
  cause.group = g;
  cause.seq = group.first_seq + unwaited.instance;
  cause.can_block = false;
  cause.deviants = unwaited.ranks;
  f.message =
      fmt::format("{} issued {} ({}) asynchronously and never waited for it; its peers did",
                  context.describe_ranks(unwaited.ranks), context.describe_call(unwaited.first),
                  context.describe_location(unwaited.first, cause.seq));
  if (unwaited.calls > 1)
    f.message += fmt::format(" ({} in all)", plural(unwaited.calls, "such call"));
  f.group = group.name;
  f.seq = cause.seq;
  f.culprits = context.ranks(unwaited.ranks);
  f.ranks = f.culprits;
  const trace::Call& call = context.call(unwaited.first);
  if (call.step != trace::kNone) f.step = cause.step = call.step;
  f.what = context.run.tables.names(call.what);
  f.evidence = {context.evidence(unwaited.first, "no wait for it")};
  set_fingerprint(f, trace::describe(context.run.tables, call.signature));
  return cause;
}

}  // namespace

std::vector<Cause> check_lifecycle(const Context& context) {
  if (context.semantics == CallSemantics::mpi) return check_requests(context);
  std::vector<Cause> out;
  for (std::size_t g = 0; g < context.groups.size(); ++g) {
    if (!context.groups[g].comparable) continue;
    const Unwaited unwaited = unwaited_in(context, context.groups[g]);
    if (unwaited.calls > 0) out.push_back(explain_unwaited(context, unwaited, g));
  }
  return out;
}

namespace {

// Whether the operation fills no buffer on this rank, so that reading the buffer is harmless: the
// root of a broadcast only sends.
bool only_gives(const trace::Signature& s, trace::Rank rank) {
  switch (s.op) {
    case trace::Op::send:
      return true;
    case trace::Op::broadcast:
      return s.root == rank.value;
    case trace::Op::reduce:
    case trace::Op::gather:
      return s.root != trace::kNone && s.root != rank.value;
    default:
      return false;
  }
}

// Accesses to the buffers of calls from one source location.
struct Race {
  CallSite calls;
  bool writes = false;
};
using Site = std::tuple<trace::GroupId, trace::SignatureId, trace::StringId, trace::NameListId>;

void collect_races(const Context& context, std::uint32_t rank, std::map<Site, Race>& races) {
  const trace::RankTrace& trace = context.run.ranks[rank];
  if (!trace.occurs.accesses) return;
  std::vector<bool> over(trace.calls.size());
  for (const trace::Event& event : trace.events) {
    switch (event.kind) {
      case trace::EventKind::wait:
      case trace::EventKind::waited:
        over[event.index] = true;
        break;
      case trace::EventKind::complete:
        // An MPI program knows about a completion (MPI_Test); elsewhere only the recorder sees it,
        // and the program accesses the buffer without knowing.
        if (context.semantics == CallSemantics::mpi) over[event.index] = true;
        break;
      case trace::EventKind::use:
      case trace::EventKind::write: {
        const trace::Call& call = trace.calls[event.index];
        const bool writes = event.kind == trace::EventKind::write;
        if (!call.has(trace::kAsync) || over[event.index]) break;
        const trace::Signature& s = context.run.tables.signatures[call.signature];
        if (!writes && only_gives(s, trace.rank)) break;
        Race& race = races[{call.group, call.signature, call.at, call.what}];
        const CallRef ref{rank, event.index};
        race.writes |= writes;
        if (race.calls.add(ref)) {
          race.calls.evidence.push_back(context.evidence(
              ref, fmt::format("{}: its buffer was {} before the wait", context.describe_call(ref),
                               writes ? "written" : "read")));
        }
        break;
      }
      default:
        break;
    }
  }
}

}  // namespace

std::vector<Cause> check_buffers(const Context& context) {
  std::map<Site, Race> races;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) collect_races(context, r, races);
  std::vector<Cause> out;
  for (auto& [site, race] : races) {
    const CallSite& calls = race.calls;
    std::string message = fmt::format(
        "{} {} the buffer of {} ({}) before waiting for it", context.describe_ranks(calls.ranks),
        race.writes ? "wrote" : "read", context.describe_call(calls.first),
        context.describe_location(calls.first, context.call(calls.first).seq));
    if (calls.count > calls.ranks.size()) {
      message += fmt::format(" ({} in all)", plural(calls.count, "such access", "such accesses"));
    }
    out.push_back(cause_at(context, RuleId::buffer_race, std::move(race.calls)));
    out.back().finding.message = std::move(message);
  }
  sort_by_location(out);
  return out;
}

}  // namespace lockstep::verify
