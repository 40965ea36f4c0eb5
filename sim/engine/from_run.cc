#include "sim/engine/from_run.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/rational.h"
#include "base/text.h"
#include "sim/collectives/closed_form.h"
#include "sim/collectives/collective.h"
#include "trace/run.h"

namespace lockstep::sim {
namespace {

// What identifies a sequence of messages that match in order: source, destination, tag, group.
using Channel = std::tuple<std::int32_t, std::int32_t, std::int32_t, trace::GroupId>;

// Bytes of an element of the call; empty: not recorded, or a type that nobody knows.
std::optional<std::int64_t> element_width(const trace::Run& run, const trace::Signature& call) {
  const std::vector<std::string> dtypes = run.tables.names(call.dtypes);
  return dtypes.empty() ? std::nullopt : trace::element_bytes(dtypes.front());
}

// Whether bytes_of() is 0 because nobody knows, and not because the buffer is empty.
bool is_unsized(const trace::Run& run, const trace::Signature& call) {
  switch (plain_op(call.op)) {
    case trace::Op::barrier:
    case trace::Op::finalize:
    case trace::Op::probe:
    case trace::Op::recv:
      return false;
    default:
      break;
  }
  const std::int64_t most = std::max({call.in_elements, call.out_elements, call.count});
  return most == trace::kNone || (most > 0 && !element_width(run, call));
}

// The buffer of a call in bytes, as `Collective` counts it: the whole buffer, not a rank's share. 0
// where element type or counts are unknown.
std::int64_t bytes_of(const trace::Run& run, const trace::Signature& signature,
                      std::size_t members) {
  // For all-gather and gather the whole buffer is what all members contribute: input · members.
  const trace::Op op = plain_op(signature.op);
  const bool gathers = op == trace::Op::all_gather || op == trace::Op::gather;
  const bool by_input = gathers && signature.in_elements != trace::kNone;
  // Elsewhere the larger side is the whole buffer: a reduce-scatter's input, a broadcast's either.
  // Traces of some formats record only `count`; kNone is negative and loses against 0.
  const std::int64_t elements = by_input ? signature.in_elements
                                         : std::max({signature.in_elements, signature.out_elements,
                                                     signature.count, std::int64_t{0}});
  // A Rational does not overflow; a total that does not fit 64 bits saturates.
  const auto total = Rational(elements) * Rational(element_width(run, signature).value_or(0)) *
                     Rational(by_input ? static_cast<std::int64_t>(members) : 1);
  return total.rounded().value_or(std::numeric_limits<std::int64_t>::max());
}

// The element count that all members must agree on, which depends on the operation; kNone: none.
std::int64_t agreeing_elements(const trace::Signature& signature) {
  switch (plain_op(signature.op)) {
    case trace::Op::all_to_all:
    case trace::Op::gather:
    case trace::Op::scatter:
      return trace::kNone;  // may differ from rank to rank, or exist on the root only
    case trace::Op::reduce_scatter:
      return signature.in_elements;
    default:
      break;
  }
  if (signature.in_elements != trace::kNone) return signature.in_elements;
  return signature.out_elements != trace::kNone ? signature.out_elements : signature.count;
}

// Equal programs of equal events have equal hashes: a multiplication of 64 bits per value.
std::uint64_t hash_of(const Program& program, const std::vector<std::uint32_t>& events) {
  std::uint64_t hash = program.steps.size();
  const auto mix = [&hash](std::uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15U;
    hash ^= hash >> 32U;
  };
  for (const ProgramStep& step : program.steps) {
    mix(static_cast<std::uint64_t>(step.duration.value));
    mix(step.index);
    mix((std::uint64_t{step.slot} << 16U) | (std::uint64_t{step.stream} << 8U) |
        (static_cast<std::uint64_t>(step.kind) << 1U) | static_cast<std::uint64_t>(step.blocks));
  }
  for (const std::uint32_t event : events) mix(event);
  return hash;
}

// Linear in the run: what ranks have in common (groups, calls, programs) is looked up, not rebuilt
// or compared for each of them. Ranks that share columns cost nothing but their groups.
class Compiler {
 public:
  Compiler(const trace::Run& run, Ranks ranks) : run_(run), recorded_(ranks == Ranks::recorded) {}

  // A missing rank would leave its peers waiting forever, and the simulation would report a hang
  // that the job did not have.
  Result<RunProgram> compile() {
    for (std::int32_t r = 0; r < run_.world_size; ++r) {
      if (!recorded_ && run_.find(trace::Rank(r)) == nullptr) {
        return Error{fmt::format("rank {} left no trace, and cannot be simulated", r),
                     {},
                     fmt::format("give the traces of all {} ranks", run_.world_size)};
      }
    }
    for (const trace::RankTrace& trace : run_.ranks) {
      add_silent_ranks(trace.rank.value);
      if (const Status read = compile(trace); !read) return read.error();
    }
    add_silent_ranks(run_.world_size);
    // After all ranks, when all groups are known.
    add_slots_of_silent_members();
    return std::move(out_);
  }

 private:
  struct RankState {
    std::map<std::uint32_t, std::uint16_t> slots;           // by index in ProgramJob::groups
    std::map<trace::GroupId, std::uint32_t> group_indices;  // those that it has called in
    std::vector<std::uint32_t> groups;
    std::map<std::string, std::uint8_t> streams;
    std::vector<std::uint32_t> step_of_call;                       // by index in RankTrace::calls
    std::unordered_map<std::int64_t, std::uint32_t> step_of_span;  // by SpanMark::id
  };
  static constexpr std::uint32_t kNotReached = UINT32_MAX;

  // Ranks without a trace do nothing; ProgramJob::ranks has one for each rank.
  void add_silent_ranks(std::int32_t until) {
    while (std::cmp_less(out_.job.ranks.size(), until)) {
      out_.silent.push_back(static_cast<std::int32_t>(out_.job.ranks.size()));
      out_.job.ranks.push_back({intern(Program{}, {}), {}});
    }
  }

  bool takes_part(std::int32_t rank) const {
    return !recorded_ || run_.find(trace::Rank(rank)) != nullptr;
  }

  Error refusal(const trace::RankTrace& trace, const std::string& why, std::string fix) const {
    return {fmt::format("rank {} {}", trace.rank.value, why), {trace.source}, std::move(fix)};
  }

  // What came of a trace without messages; whoever shares its columns and groups runs the same.
  struct Compiled {
    const trace::RankTrace* trace;
    std::uint32_t index;  // of the rank, in ProgramJob::ranks
  };

  static bool does_the_same(const trace::RankTrace& a, const trace::RankTrace& b) {
    return a.calls.identity() == b.calls.identity() && a.spans.identity() == b.spans.identity() &&
           std::ranges::equal(a.groups, b.groups, [](const auto& x, const auto& y) {
             return x.group == y.group && x.ranks.identity() == y.ranks.identity();
           });
  }

  Status compile(const trace::RankTrace& trace) {
    std::vector<Compiled>& known = compiled_[trace.events.identity()];
    for (const Compiled& one : known) {
      if (!does_the_same(*one.trace, trace)) continue;
      out_.job.ranks.push_back(out_.job.ranks[one.index]);
      return Status::ok();
    }
    messages_ = false;
    if (const Status ok = compile_alone(trace); !ok) return ok;
    if (!messages_)
      known.push_back({&trace, static_cast<std::uint32_t>(out_.job.ranks.size() - 1)});
    return Status::ok();
  }

  Status compile_alone(const trace::RankTrace& trace) {
    RankState rank;
    rank.step_of_call.resize(trace.calls.size(), kNotReached);
    Program program;
    std::vector<std::uint32_t> events;
    for (std::uint32_t e = 0; e < trace.events.size(); ++e) {
      const trace::Event& event = trace.events[e];
      ProgramStep step;
      // Only issue, wait and span become steps. Recorded starts and completions do not: the
      // simulation computes its own. `events` remembers which event each step came from, for
      // as_simulated().
      if (event.kind == trace::EventKind::issue) {
        Result<ProgramStep> call_step = call_step_of(trace, trace.calls[event.index], rank);
        if (!call_step) return call_step.error();
        step = *call_step;
        rank.step_of_call[event.index] = static_cast<std::uint32_t>(program.steps.size());
      } else if (event.kind == trace::EventKind::wait) {
        step.kind = StepKind::wait;
        step.index = rank.step_of_call[event.index];
      } else if (event.kind == trace::EventKind::span) {
        const trace::SpanMark& span = trace.spans[event.index];
        Result<ProgramStep> span_step = span_step_of(trace, span, rank);
        if (!span_step) return span_step.error();
        step = *span_step;
        if (span.id != trace::kNone)
          rank.step_of_span[span.id] = static_cast<std::uint32_t>(program.steps.size());
      } else {
        continue;
      }
      program.steps.push_back(step);
      events.push_back(e);
    }
    program.streams = static_cast<std::uint32_t>(rank.streams.size());
    program.slots = static_cast<std::uint32_t>(rank.groups.size());
    out_.job.ranks.push_back({intern(std::move(program), std::move(events)), rank.groups});
    return Status::ok();
  }

  // Work of the host or of a stream, or the wait of one of them.
  Result<ProgramStep> span_step_of(const trace::RankTrace& trace, const trace::SpanMark& span,
                                   RankState& rank) {
    ProgramStep step;
    step.stream = ProgramStep::kHost;
    if (span.stream.value != 0) {
      const Result<std::uint8_t> stream =
          stream_of(trace, rank, fmt::format("s{}", run_.tables.str(span.stream)));
      if (!stream) return stream.error();
      step.stream = *stream;
    }
    if (span.after == trace::kNone) {
      // Negative durations (of a clock that was set back) count as 0.
      step.duration = Picos{std::max<trace::Nanos>(span.duration, 0)} * 1000;
      return step;
    }
    const std::uint32_t awaited = step_with_id(trace, span.after, rank);
    if (awaited == kNotReached)
      return refusal(
          trace,
          fmt::format("waits for {}, which no earlier call or span has as its id", span.after),
          "a span's \"after\" names the id of an earlier line (docs/trace-format.md)");
    const bool on_host = step.stream == ProgramStep::kHost;
    step.kind = on_host ? StepKind::wait : StepKind::follow;
    if (on_host) step.stream = 0;  // as the waits for calls have it
    step.index = awaited;
    return step;
  }

  // The step of the call or span with that id; kNotReached: none so far.
  static std::uint32_t step_with_id(const trace::RankTrace& trace, std::int64_t id,
                                    const RankState& rank) {
    if (const auto span = rank.step_of_span.find(id); span != rank.step_of_span.end())
      return span->second;
    const auto call =
        std::lower_bound(trace.calls.begin(), trace.calls.end(), id,
                         [](const trace::Call& c, std::int64_t i) { return c.id < i; });
    if (call == trace.calls.end() || call->id != id) return kNotReached;
    return rank.step_of_call[static_cast<std::size_t>(call - trace.calls.begin())];
  }

  Result<std::uint8_t> stream_of(const trace::RankTrace& trace, RankState& rank,
                                 const std::string& name) {
    const auto [found, is_new] =
        rank.streams.try_emplace(name, static_cast<std::uint8_t>(rank.streams.size()));
    if (is_new && rank.streams.size() > ProgramStep::kHost)
      return refusal(trace, "uses more than 255 streams", "name the streams in its calls");
    return found->second;
  }

  Result<ProgramStep> call_step_of(const trace::RankTrace& trace, const trace::Call& call,
                                   RankState& rank) {
    const trace::Signature& signature = run_.tables.signatures[call.signature];
    const bool message = trace::is_point_to_point(signature.op);
    messages_ = messages_ || message;
    if (!recorded_ && !message && !default_algorithm(plain_op(signature.op)))
      return refusal(trace,
                     fmt::format("calls \"{}\", whose time no formula gives",
                                 signature.op == trace::Op::other
                                     ? printable(run_.tables.str(signature.other_op))
                                     : std::string(trace::op_name(signature.op))),
                     "let calls take what they took (--recorded-calls), or simulate a program "
                     "without it");
    Result<std::uint32_t> group =
        message ? channel_of(trace, call, signature) : group_of(trace, call.group, rank);
    if (!group) return group.error();
    const auto [slot, is_new] =
        rank.slots.try_emplace(*group, static_cast<std::uint16_t>(rank.groups.size()));
    if (is_new) rank.groups.push_back(*group);
    if (rank.groups.size() > UINT16_MAX)
      return refusal(trace, "is in more than 65535 groups and channels", "simulate fewer steps");
    // Streams are named by slot ("g0"), not by group: ranks that do the same then have equal
    // programs although their groups' names differ. "s" and the stream's name where the trace
    // records one, so that the two kinds cannot clash.
    const std::string own = fmt::format("g{}", slot->second);
    const Result<std::uint8_t> stream =
        stream_of(trace, rank,
                  call.stream.value == 0 ? own : fmt::format("s{}", run_.tables.str(call.stream)));
    if (!stream) return stream.error();
    ProgramStep step;
    step.kind = StepKind::call;
    step.slot = slot->second;
    step.stream = *stream;
    // A blocking collective returns only when it is complete.
    step.blocks = !call.has(trace::kAsync);
    step.index = call_index_of(call.signature, out_.job.groups[*group].members.size());
    return step;
  }

  ProgramCall call_of(const trace::Signature& signature, std::size_t members) const {
    ProgramCall call;
    call.op = plain_op(signature.op);
    call.other_op = signature.other_op;
    call.redop = signature.redop;
    call.dtypes = signature.dtypes;
    call.root = signature.root;
    call.elements = agreeing_elements(signature);
    call.bytes = Bytes{bytes_of(run_, signature, members)};
    return call;
  }

  std::uint32_t call_index_of(trace::SignatureId id, std::size_t members) {
    const auto [found, is_new] = call_indices_.try_emplace({id, members});
    if (is_new) found->second = intern(call_of(run_.tables.signatures[id], members));
    return found->second;
  }

  Result<std::uint32_t> group_of(const trace::RankTrace& trace, trace::GroupId id,
                                 RankState& rank) {
    if (const auto known = rank.group_indices.find(id); known != rank.group_indices.end())
      return known->second;
    const Result<std::uint32_t> index = group_of(trace, id);
    if (index) rank.group_indices.emplace(id, *index);
    return index;
  }

  Result<std::uint32_t> group_of(const trace::RankTrace& trace, trace::GroupId id) {
    std::vector<const trace::RankList*> lines;
    for (const trace::RankTrace::Membership& group : trace.groups)
      if (group.group == id && !group.ranks.empty()) lines.push_back(&group.ranks);
    // "world" needs no group line: it is all ranks.
    const bool unnamed = lines.empty() && run_.tables.str(id) != "world";
    if (unnamed && recorded_) return intern_group(id, {trace.rank.value});
    if (unnamed) {
      return refusal(
          trace,
          fmt::format("calls in group \"{}\", whose ranks it does not name", run_.tables.str(id)),
          "add a group line (docs/trace-format.md), or let calls take what they took: "
          "--recorded-calls");
    }
    // Ranks that name the same members share one list, so that a group's members are copied and
    // compared once, not for each of its ranks. Several lines for one group are rare.
    const void* const list = lines.empty() ? nullptr : lines.front()->identity();
    if (lines.size() <= 1) {
      if (const auto known = group_of_list_.find({id, list}); known != group_of_list_.end())
        return known->second;
    }
    std::vector<std::int32_t> members;
    for (const trace::RankList* const ranks : lines)
      for (const trace::Rank member : *ranks) members.push_back(member.value);
    if (lines.empty())
      for (std::int32_t r = 0; r < run_.world_size; ++r) members.push_back(r);
    std::erase_if(members, [this](std::int32_t member) { return !takes_part(member); });
    const std::uint32_t index = intern_group(id, std::move(members));
    if (lines.size() <= 1) group_of_list_.emplace(std::pair(id, list), index);
    return index;
  }

  Result<std::uint32_t> channel_of(const trace::RankTrace& trace, const trace::Call& call,
                                   const trace::Signature& signature) {
    if (call.peer.value < 0 || call.peer.value >= run_.world_size ||
        signature.op == trace::Op::recv_any)
      return refusal(trace, "receives from any source, or from a rank that there is not",
                     "name the peer: what depends on who comes first is not simulated");
    // Both sides compute the same key, so the k-th send matches the k-th recv of the channel.
    const bool sends = signature.op == trace::Op::send;
    const std::int32_t from = sends ? trace.rank.value : call.peer.value;
    const std::int32_t to = sends ? call.peer.value : trace.rank.value;
    const auto next = static_cast<std::uint32_t>(out_.job.groups.size());
    const auto [found, is_new] = channels_.try_emplace({from, to, call.ptag, call.group}, next);
    if (is_new) {
      std::vector<std::int32_t> members{from, to};
      std::erase_if(members, [this](std::int32_t member) { return !takes_part(member); });
      out_.job.groups.push_back({std::move(members)});
    }
    return found->second;
  }

  std::uint32_t intern_group(trace::GroupId id, std::vector<std::int32_t> members) {
    // Keyed by name and members: two groups of the same name with other members are different
    // groups.
    const auto next = static_cast<std::uint32_t>(out_.job.groups.size());
    const auto [found, is_new] = groups_.try_emplace({id, members}, next);
    if (is_new) out_.job.groups.push_back({std::move(members)});
    return found->second;
  }

  std::uint32_t intern(const ProgramCall& call) {
    // A linear search: a job's signatures are few, and each comes here once per size of a group.
    const auto found = std::find(out_.job.calls.begin(), out_.job.calls.end(), call);
    if (found != out_.job.calls.end())
      return static_cast<std::uint32_t>(found - out_.job.calls.begin());
    out_.job.calls.push_back(call);
    return static_cast<std::uint32_t>(out_.job.calls.size() - 1);
  }

  std::uint32_t intern(Program program, std::vector<std::uint32_t> events) {
    const std::uint64_t hash = hash_of(program, events);
    const auto [first, last] = programs_.equal_range(hash);
    for (auto known = first; known != last; ++known)
      if (out_.job.programs[known->second] == program && out_.events[known->second] == events)
        return known->second;
    const auto index = static_cast<std::uint32_t>(out_.job.programs.size());
    programs_.emplace(hash, index);
    out_.job.programs.push_back(std::move(program));
    out_.events.push_back(std::move(events));
    return index;
  }

  // A member that never calls in a group is still waited for: it gets a slot for the group,
  // so that fold() and the collectives count its arrival.
  void add_slots_of_silent_members() {
    std::vector<std::vector<std::uint32_t>> seated(out_.job.groups.size());
    for (std::uint32_t r = 0; r < out_.job.ranks.size(); ++r)
      for (const std::uint32_t g : out_.job.ranks[r].groups) seated[g].push_back(r);
    // By rank: the last group in which it has a seat, plus one.
    std::vector<std::uint32_t> seat(out_.job.ranks.size(), 0);
    for (std::uint32_t g = 0; g < out_.job.groups.size(); ++g) {
      for (const std::uint32_t r : seated[g]) seat[r] = g + 1;
      for (const std::int32_t member : out_.job.groups[g].members) {
        // A group line may name ranks that do not exist.
        if (member < 0 || member >= run_.world_size) continue;
        const auto r = static_cast<std::size_t>(member);
        if (seat[r] == g + 1) continue;
        seat[r] = g + 1;
        out_.job.ranks[r].groups.push_back(g);
      }
    }
  }

  const trace::Run& run_;
  const bool recorded_;  // Ranks::recorded
  RunProgram out_;
  std::map<std::pair<trace::GroupId, std::vector<std::int32_t>>, std::uint32_t> groups_;
  // By name and list of members, as an object; nullptr: all ranks.
  std::map<std::pair<trace::GroupId, const void*>, std::uint32_t> group_of_list_;
  std::map<std::pair<trace::SignatureId, std::size_t>, std::uint32_t> call_indices_;
  std::unordered_multimap<std::uint64_t, std::uint32_t> programs_;  // by hash_of()
  std::map<Channel, std::uint32_t> channels_;
  std::unordered_map<const void*, std::vector<Compiled>> compiled_;  // by identity of the events
  bool messages_ = false;  // the trace at hand has some, and they name single ranks
};

}  // namespace

Result<RunProgram> program_of(const trace::Run& run, Ranks ranks) {
  return Compiler(run, ranks).compile();
}

UnsizedCalls unsized_calls(const trace::Run& run) {
  std::vector<bool> unsized(run.tables.signatures.size());
  for (std::uint32_t i = 0; i < unsized.size(); ++i)
    unsized[i] = is_unsized(run, run.tables.signatures[trace::SignatureId(i)]);
  UnsizedCalls out;
  std::unordered_map<const void*, std::size_t> known;  // by identity of the calls
  for (const trace::RankTrace& trace : run.ranks) {
    const auto [found, is_new] = known.try_emplace(trace.calls.identity(), 0);
    if (is_new)
      found->second = static_cast<std::size_t>(
          std::count_if(trace.calls.begin(), trace.calls.end(),
                        [&](const trace::Call& call) { return unsized[call.signature.value]; }));
    out.unsized += found->second;
    out.all += trace.calls.size();
  }
  return out;
}

}  // namespace lockstep::sim
