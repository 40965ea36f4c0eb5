#include "verify/lifecycle.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/text.h"
#include "verify/call_sites.h"

namespace lockstep {

namespace {

bool waits(const Call& call) { return call.has(kWaitBegan) || call.has(kWaitEnded); }

// Which calls of a group some member waited for.
struct Waits {
  std::vector<bool> waited;  // by their place in the group
  bool any_waited = false;
  bool any_left = false;  // some asynchronous call that its rank did not wait for
};

Waits waits_in(const Run& run, const GroupStreams& group) {
  Waits out;
  for (const Stream& stream : group.streams) {
    out.waited.resize(std::max(out.waited.size(), stream.calls.size()));
    const std::vector<Call>& calls = run.ranks[stream.rank_index].calls;
    for (std::size_t m = 0; m < stream.calls.size(); ++m) {
      const Call& call = calls[stream.calls[m]];
      if (waits(call)) {
        out.waited[m] = out.any_waited = true;
      } else {
        out.any_left |= call.has(kAsync);
      }
    }
  }
  return out;
}

// A rank that ended, or at least came to the end of its program.
bool reached_its_end(const Context& context, const RankTrace& trace) {
  if (trace.end == End::clean) return true;
  return !trace.calls.empty() &&
         context.run.tables.signatures[trace.calls.back().signature].op == Op::finalize;
}

// MPI: requests by their call and its place in the program, so that a loop is one finding.
std::vector<Cause> check_requests(const Context& context) {
  std::map<std::tuple<GroupId, SignatureId, StringId>, CallSite> forgotten;
  for (std::uint32_t r = 0; r < context.run.ranks.size(); ++r) {
    const RankTrace& trace = context.run.ranks[r];
    if (!reached_its_end(context, trace)) continue;
    for (std::uint32_t c = 0; c < trace.calls.size(); ++c) {
      const Call& call = trace.calls[c];
      if (!call.has(kAsync) || waits(call) || call.has(kCompleted)) continue;
      CallSite& site = forgotten[{call.group, call.signature, call.at}];
      if (site.add({r, c})) site.evidence.push_back(context.evidence({r, c}, "no wait for it"));
    }
  }
  std::vector<Cause> out;
  for (auto& [key, found] : forgotten) {
    std::string message = context.rank_words(found.ranks) + " issued " +
                          context.call_words(found.first) + " (" +
                          context.place_words(found.first, context.call(found.first).seq) +
                          ") and never waited for it, nor freed its request";
    if (found.count > found.ranks.size()) {
      message += " (" + plural(found.count, "such call") + " in all)";
    }
    out.push_back(cause_at(context, RuleId::never_waited, std::move(found)));
    Finding& f = out.back().finding;
    f.severity = Severity::error;  // MPI requires it
    f.message = std::move(message);
    f.fix = "complete the request with MPI_Wait (or free it) before MPI_Finalize";
  }
  sort_by_place(out);
  return out;
}

// c10d: the calls of one group that ranks which ended never waited for, although peers did.
struct Unwaited {
  std::vector<std::uint32_t> ranks;
  std::uint64_t calls = 0;
  CallRef first;
  std::size_t meeting = 0;  // of the first
};

Unwaited unwaited_in(const Context& context, const GroupStreams& group) {
  const Waits waits_of_all = waits_in(context.run, group);
  Unwaited out;
  if (!waits_of_all.any_waited || !waits_of_all.any_left) return out;
  for (const Stream& stream : group.streams) {
    const RankTrace& trace = context.run.ranks[stream.rank_index];
    if (trace.end != End::clean) continue;
    const std::uint64_t before = out.calls;
    for (std::size_t m = 0; m < stream.calls.size(); ++m) {
      const Call& call = trace.calls[stream.calls[m]];
      if (!call.has(kAsync) || waits(call) || !waits_of_all.waited[m]) continue;
      // Our recorder's ring over NCCL: a synchronous call, too, returns before it is complete, and
      // a host that reads a value waits for whatever is in flight just then. Who did not wait had
      // it completed before.
      const bool reads = context.run.ranks[stream.rank_index].source.ends_with(".ring");
      if (reads && context.semantics == CallSemantics::nccl && call.has(kCompleted)) continue;
      if (out.calls++ > 0) continue;
      out.first = {stream.rank_index, stream.calls[m]};
      out.meeting = m;
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
  cause.seq = group.first_seq + unwaited.meeting;
  cause.can_block = false;
  cause.deviants = unwaited.ranks;
  f.message = context.rank_words(unwaited.ranks) + " issued " + context.call_words(unwaited.first) +
              " (" + context.place_words(unwaited.first, cause.seq) +
              ") asynchronously and never waited for it; its peers did";
  if (unwaited.calls > 1) f.message += " (" + plural(unwaited.calls, "such call") + " in all)";
  f.group = group.name;
  f.seq = cause.seq;
  f.culprits = context.ranks(unwaited.ranks);
  f.ranks = f.culprits;
  const Call& call = context.call(unwaited.first);
  if (call.step != kNone) f.step = cause.step = call.step;
  f.what = context.run.tables.names(call.what);
  f.evidence = {context.evidence(unwaited.first, "no wait for it")};
  set_fingerprint(f, describe(context.run.tables, call.signature));
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

}  // namespace lockstep
