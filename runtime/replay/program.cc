#include "runtime/replay/program.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/replay/kept_calls.h"
#include "runtime/replay/refusals.h"
#include "runtime/replay/sizes.h"

namespace lockstep::runtime {

namespace {

constexpr std::uint32_t kLeftOut = UINT32_MAX;
constexpr std::string_view kDefaultType = "float32";
constexpr std::string_view kDefaultReduction = "sum";

// The members of the group of all ranks are known even if no trace declares it.
void declare_world(trace::Run& run) {
  const trace::GroupId world = run.tables.groups.intern("world");
  std::vector<trace::Rank> all;
  all.reserve(static_cast<std::size_t>(std::max(run.world_size, 0)));
  for (std::int32_t r = 0; r < run.world_size; ++r) all.emplace_back(r);
  for (trace::RankTrace& trace : run.ranks) {
    const bool uses = std::any_of(trace.calls.begin(), trace.calls.end(),
                                  [&](const trace::Call& c) { return c.group == world; });
    const bool declares = std::any_of(trace.groups.begin(), trace.groups.end(),
                                      [&](const auto& g) { return g.group == world; });
    if (uses && !declares) trace.groups.push_back({world, trace::RankList(all), {}});
  }
}

// Converts one rank's events and calls to those of a program.
class RankProgram {
 public:
  struct Recorder {
    bool waits = false;     // the host's waits were recorded
    bool progress = false;  // which calls completed was recorded
  };

  RankProgram(const trace::Tables& tables, trace::RankTrace& trace, const std::vector<bool>& kept,
              Recorder recorder, const ProgramOptions& options)
      : tables_(tables), trace_(trace), kept_(kept), recorder_(recorder), options_(options) {
    index_.assign(trace.calls.size(), kLeftOut);
  }

  void make() {
    const std::size_t marks_begin = begin_of_marks();
    for (std::size_t e = 0; e < trace_.events.size(); ++e) {
      const trace::Event& event = trace_.events[e];
      switch (event.kind) {
        case trace::EventKind::issue:
          if (kept_[event.index]) issue(event.index);
          break;
        case trace::EventKind::wait:
        case trace::EventKind::waited:
          if (recorder_.waits && index_[event.index] != kLeftOut) wait(index_[event.index]);
          break;
        case trace::EventKind::step:
        case trace::EventKind::modality:
          if (e >= marks_begin) events_.push_back({trace::kNoTime, event.index, event.kind});
          break;
        case trace::EventKind::span:
          if (e >= marks_begin && stands_in(trace_.spans[event.index])) {
            events_.push_back({trace::kNoTime, event.index, event.kind});
          }
          break;
        default:
          break;
      }
    }
    wait_for_batch();
    finish();
  }

 private:
  bool stands_in(const trace::SpanMark& span) const {
    return tables_.str(span.name).starts_with("remedy.");
  }

  // Marks before the first kept call are dropped, except those of its own step.
  std::size_t begin_of_marks() const {
    std::size_t begin = 0;
    for (std::size_t e = 0; e < trace_.events.size(); ++e) {
      const trace::Event& event = trace_.events[e];
      if (event.kind == trace::EventKind::step) begin = e + 1;
      if (event.kind != trace::EventKind::issue) continue;
      if (kept_[event.index]) return event.index == 0 ? 0 : begin;
    }
    return kept_.empty() ? 0 : begin;
  }

  void issue(std::uint32_t old) {
    trace::Call call = trace_.calls[old];
    if (call.coalesced == trace::kNone || call.coalesced != batch_) wait_for_batch();
    // An open call did not complete in the recorded run.
    const bool open = !call.has(trace::kCompleted) && !call.has(trace::kWaitEnded);
    // Synchronous calls inside a batch (ncclGroup) must not block before the batch is complete, so
    // they become asynchronous calls with a wait after the batch.
    const bool waits_after_batch = !call.has(trace::kAsync) && call.coalesced != trace::kNone;
    if (!recorder_.waits && recorder_.progress) wait_as_device(call.group, open);
    const auto index = static_cast<std::uint32_t>(calls_.size());
    index_[old] = index;
    call.id = index;
    call.flags = call.has(trace::kAsync) || waits_after_batch ? trace::kAsync : 0;
    call.values = 0;
    call.stream = call.stack = trace::StringId{};
    // New numbers per group, with messages counted separately, because calls may have been left
    // out.
    std::uint32_t& next = next_[{call.group, tables_.is_message(call)}];
    call.seq = next++;
    if (waits_after_batch) {
      batch_ = call.coalesced;
      batch_calls_.push_back(index);
    }
    call.coalesced = trace::kNone;
    calls_.push_back(call);
    waited_.push_back(false);
    events_.push_back({trace::kNoTime, index, trace::EventKind::issue});
    if (open && !oldest_open_) oldest_open_ = index;
  }

  // A device runs a rank's calls in order, each communicator's by itself, and no two communicators
  // at a time. So a call in another group waits for the oldest unfinished one, and the rank gets no
  // further than it did on the device.
  void wait_as_device(trace::GroupId group, bool open) {
    if (!open || !oldest_open_ || calls_[*oldest_open_].group == group) return;
    wait(*std::exchange(oldest_open_, std::nullopt));
  }

  void wait(std::uint32_t call) {
    wait_for_batch();
    if (!calls_[call].has(trace::kAsync) || waited_[call]) return;
    waited_[call] = true;
    calls_[call].flags |= trace::kWaitBegan;
    events_.push_back({trace::kNoTime, call, trace::EventKind::wait});
  }

  void wait_for_batch() {
    batch_ = trace::kNone;
    for (const std::uint32_t call : std::exchange(batch_calls_, {})) wait(call);
  }

  void finish() {
    trace::End end = trace_.end == trace::End::cut ? trace::End::killed : trace_.end;
    if (options_.ends_well) end = trace::End::clean;
    // Without recorded waits, a rank that did not die waits for all its calls at its end.
    const bool stood = end == trace::End::clean || end == trace::End::hung;
    if (!recorder_.waits && stood) {
      for (std::uint32_t c = 0; c < calls_.size(); ++c) wait(c);
    }
    std::vector<trace::ExceptionMark> exceptions;
    if (end == trace::End::exception) {
      const std::string text =
          trace_.exceptions.empty() ? std::string() : trace_.exceptions.back().what;
      exceptions.push_back({text.empty() ? "an exception of the recorded run" : text, {}});
      events_.push_back({trace::kNoTime, 0, trace::EventKind::exception});
    }
    trace::RankTrace out;
    out.rank = trace_.rank;
    out.world_size = trace_.world_size;
    out.source = trace_.source;
    out.backend = "gloo";
    out.end = end;
    out.events = std::move(events_);
    out.calls = std::move(calls_);
    out.groups = std::move(trace_.groups);
    out.modalities = std::move(trace_.modalities);
    out.spans = std::move(trace_.spans);
    out.steps = std::move(trace_.steps);
    // A replay computes no loss.
    for (trace::StepMark& step : out.steps) step.loss = std::nullopt;
    for (trace::SpanMark& span : out.spans.own()) span.duration = 0;
    out.exceptions = std::move(exceptions);
    trace_ = std::move(out);
  }

  const trace::Tables& tables_;
  trace::RankTrace& trace_;
  const std::vector<bool>& kept_;
  const Recorder recorder_;
  const ProgramOptions& options_;
  std::vector<std::uint32_t> index_;  // call of the trace → call of the program
  std::vector<trace::Event> events_;
  std::vector<trace::Call> calls_;
  std::vector<bool> waited_;
  std::map<std::pair<trace::GroupId, bool>, std::uint32_t> next_;
  std::int32_t batch_ = trace::kNone;
  std::vector<std::uint32_t> batch_calls_;  // of the open batch
  std::optional<std::uint32_t> oldest_open_;
};

// Fills in fields that some members of a collective did not record from those that did.
class UnknownFields {
 public:
  explicit UnknownFields(trace::Run& program) : program_(program) {}

  std::optional<Error> fill() {
    for (const trace::RankTrace& trace : program_.ranks) {
      for (const trace::Call& call : trace.calls) note(call);
    }
    for (trace::RankTrace& trace : program_.ranks) {
      for (trace::Call& call : trace.calls.own()) {
        if (auto error = fill(trace, call)) return error;
      }
    }
    return std::nullopt;
  }

 private:
  struct Known {
    trace::IntListId in, out;
    trace::NameListId dtypes;
    trace::StringId redop;
    std::int32_t root = trace::kNone;
  };

  template <class Id>
  static void take(Id& to, Id from) {
    if (to == Id{}) to = from;
  }

  void note(const trace::Call& call) {
    if (program_.tables.is_message(call)) return;
    const trace::Signature& s = program_.tables.signatures[call.signature];
    Known& known = known_[{call.group, call.seq}];
    take(known.in, s.in);
    take(known.out, s.out);
    take(known.dtypes, s.dtypes);
    take(known.redop, s.redop);
    if (known.root == trace::kNone) known.root = s.root;
  }

  bool one_tensor(trace::IntListId shapes) const {
    return shapes != trace::IntListId{} &&
           trace::unflatten_shapes(program_.tables.int_lists[shapes]).size() == 1;
  }

  static bool rooted(trace::Op op) {
    return op == trace::Op::broadcast || op == trace::Op::reduce || op == trace::Op::gather ||
           op == trace::Op::scatter;
  }

  std::optional<Error> fill(const trace::RankTrace& trace, trace::Call& call) {
    trace::Tables& tables = program_.tables;
    trace::Signature s = tables.signatures[call.signature];
    if (s.op == trace::Op::barrier) return std::nullopt;
    if (s.op == trace::Op::all_to_all && one_tensor(s.in) && one_tensor(s.out)) {
      s.op = trace::Op::all_to_all_single;  // some recorders use one name for both
    }
    const Known known = trace::is_point_to_point(s.op) ? Known() : known_[{call.group, call.seq}];
    if (s.in == trace::IntListId{} && s.out == trace::IntListId{}) {
      s.in = known.in;
      s.out = known.out;
    }
    if (s.in == trace::IntListId{} && s.out == trace::IntListId{}) {
      return Error{fmt::format("rank {}, {}: no member recorded its sizes", trace.rank.value,
                               call_in_words(tables, call)),
                   {trace.source},
                   "docs/formats.md says what each format records"};
    }
    take(s.dtypes, known.dtypes);
    if (s.dtypes == trace::NameListId{}) s.dtypes = tables.make_names({std::string(kDefaultType)});
    if (trace::is_reduction(s.op)) {
      take(s.redop, known.redop);
      if (s.redop == trace::StringId{})
        s.redop = tables.strings.intern(std::string(kDefaultReduction));
    }
    if (rooted(s.op) && s.root == trace::kNone) {
      s.root = root_in(trace, call.group, known.root);
    }
    call.signature = tables.make_signature(s);
    return std::nullopt;
  }

  // `known`, or the group's first member if `known` is not a member.
  static std::int32_t root_in(const trace::RankTrace& trace, trace::GroupId group,
                              std::int32_t known) {
    const trace::RankList& members = members_of(trace, group);
    return members.contains(trace::Rank(known)) ? known : members.front().value;
  }

  trace::Run& program_;
  std::map<std::pair<trace::GroupId, std::uint32_t>, Known> known_;
};

RankProgram::Recorder recorder_of(const trace::Run& run) {
  RankProgram::Recorder out;
  for (const trace::RankTrace& trace : run.ranks) {
    out.progress = out.progress || trace.snapshot;
    for (const trace::Call& call : trace.calls) {
      out.waits = out.waits || !call.has(trace::kAsync) || call.has(trace::kWaitBegan) ||
                  call.has(trace::kWaitEnded);
      out.progress = out.progress || call.has(trace::kCompleted);
    }
  }
  return out;
}

std::optional<Error> find_too_many(const trace::Run& run,
                                   const std::vector<std::vector<bool>>& kept) {
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    const auto calls = std::count(kept[r].begin(), kept[r].end(), true);
    if (calls <= std::ptrdiff_t{kMaxReplayCalls}) continue;
    return Error{fmt::format("rank {} made {} calls, and {} are the most", run.ranks[r].rank.value,
                             calls, kMaxReplayCalls),
                 {run.ranks[r].source},
                 "keep the last ones: --last 1000"};
  }
  return std::nullopt;
}

}  // namespace

Result<trace::Run> replay_program(trace::Run run, const ProgramOptions& options) {
  declare_world(run);
  if (auto error = find_refusal(run)) return *error;
  const Result<std::vector<std::vector<bool>>> kept = kept_calls(run, options.last);
  if (!kept) return kept.error();
  if (auto error = find_too_many(run, *kept)) return *error;
  const RankProgram::Recorder recorder = recorder_of(run);
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    RankProgram(run.tables, run.ranks[r], (*kept)[r], recorder, options).make();
  }
  run.unknown.clear();
  run.header_conflicts.clear();
  run.unreadable.clear();
  if (auto error = UnknownFields(run).fill()) return *error;
  if (options.max_elements > 0) {
    if (const Status shrunk = shrink_sizes(run, options.max_elements); !shrunk) {
      return shrunk.error();
    }
  }
  return run;
}

}  // namespace lockstep::runtime
