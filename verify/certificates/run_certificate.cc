#include "verify/certificates/run_certificate.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/certificates/certificate.h"
#include "verify/product/decide.h"
#include "verify/product/order_graph.h"
#include "verify/product/sequence_reader.h"

namespace lockstep::verify {

namespace {

constexpr const char* kOnlyCompleteRuns =
    "only a complete recording of a run that ended well can be certified";

Error refusal(const std::string& why, const std::string& file, const std::string& fix) {
  return Error{fmt::format("there is no certificate: {}", why), {file}, fix};
}

// What a trace must be so that it shows all that its rank did.
std::optional<Error> incomplete(const trace::RankTrace& trace) {
  const auto error = [&](const std::string& why) {
    return refusal(fmt::format("rank {}: {}", trace.rank.value, why), trace.source,
                   kOnlyCompleteRuns);
  };
  const bool starts_late =
      std::any_of(trace.first_seq.begin(), trace.first_seq.end(),
                  [](const auto& group_and_first) { return group_and_first.second > 0; });
  if (trace.damaged_count > 0) return error("records of its trace are damaged");
  if (trace.dropped > 0 || starts_late) return error("its trace lost its oldest records");
  if (trace.open_ended) return error("its trace lost its newest records");
  if (trace.snapshot) return error("its trace is a look at a running process");
  if (trace.end == trace::End::cut) return error("its trace has no end mark, so it may still run");
  if (trace.end != trace::End::clean || !trace.exceptions.empty())
    return error("it did not end well");
  return std::nullopt;
}

}  // namespace

std::optional<Error> incomplete(const trace::Run& run) {
  if (!run.unreadable.empty()) return run.unreadable.front().error;
  if (!run.header_conflicts.empty()) {
    return refusal(fmt::format("the traces contradict each other: {}",
                               printable(run.header_conflicts.front())),
                   "", kOnlyCompleteRuns);
  }
  if (run.ranks.size() != static_cast<std::size_t>(run.world_size) || run.ranks.empty()) {
    return refusal(fmt::format("traces of {} of {} were given", run.ranks.size(),
                               plural(run.world_size, "rank")),
                   "", kOnlyCompleteRuns);
  }
  for (const trace::RankTrace& trace : run.ranks) {
    if (auto error = incomplete(trace)) return error;
  }
  return std::nullopt;
}

namespace {

// Asynchronous calls, and not one wait.
bool hides_waits(const trace::RankTrace& trace) {
  const bool any_async =
      std::any_of(trace.calls.begin(), trace.calls.end(),
                  [](const trace::Call& call) { return call.has(trace::kAsync); });
  return any_async &&
         std::none_of(trace.events.begin(), trace.events.end(),
                      [](const trace::Event& e) { return e.kind == trace::EventKind::wait; });
}

class RunWriter {
 public:
  RunWriter(const trace::Run& run, bool device) : run_(run), device_(device) {}

  Result<std::string> write() {
    read();
    if (!table_.disputed_groups.empty()) {
      return refusal(fmt::format("ranks give group \"{}\" different members",
                                 printable(table_.disputed_groups.front())),
                     "", kOnlyCompleteRuns);
    }
    if (!table_.inconclusive.empty())
      return refusal(table_.inconclusive.front(), "", kOnlyCompleteRuns);
    compare_choices(table_, evaluation_);
    if (!evaluation_.disagreeing.empty()) {
      const ProductChannel& channel = table_.channels[evaluation_.disagreeing.front().value];
      return refusal(
          fmt::format("whether the calls in {} are the same ones is unknown: not all its members "
                      "recorded the same about them",
                      describe_channel(channel)),
          "", "record the same things of all calls, on all ranks");
    }
    const auto held = order_instances(table_, distinct_sequences(evaluation_), device_).held;
    if (!held.empty()) {
      return refusal(
          fmt::format("no single order of the calls suits all ranks; call {} of {} is held up",
                      held.front().index,
                      describe_channel(table_.channels[held.front().channel.value])),
          "",
          hidden_.empty() ? "make every rank call its groups in the same order"
                          : "waits were not recorded, so that every call is taken to block: "
                            "record them");
    }
    return text();
  }

 private:
  void read() {
    SequenceReader reader(table_, run_.world_size);
    reader.enter(run_);
    for (const trace::RankTrace& trace : run_.ranks) {
      const bool hides = hides_waits(trace);
      if (hides) hidden_.push_back(trace.rank.value);
      const SequenceId sequence = reader.read(
          trace, 0, static_cast<std::uint32_t>(trace.events.size()), {.all_block = hides});
      evaluation_.choices.emplace_back(1, sequence);
    }
  }

  std::string text() {
    CertificateText out(table_, {&run_, 1});
    out.claim("kind", "run");
    out.claim("ranks", run_.world_size);
    out.claim("order", device_ ? "device" : "host");
    out.claim_unrecorded({&run_, 1}, hidden_);
    for (std::size_t r = 0; r < evaluation_.choices.size(); ++r)
      out.sequence("run", static_cast<std::int32_t>(r), evaluation_.choices[r].front());
    out.order("run", evaluation_, device_);
    return out.text();
  }

  const trace::Run& run_;
  const bool device_;
  SequenceTable table_;
  Evaluation evaluation_;
  std::vector<std::int32_t> hidden_;  // ranks whose waits were not recorded
};

}  // namespace

Result<std::string> write_run_certificate(const trace::Run& run, const Report& report,
                                          CallSemantics semantics) {
  const Error unclean = refusal(fmt::format("the verdict is \"{}\"", to_string(report.verdict)), "",
                                "the report says why; fix that first");
  if (report.verdict == Verdict::findings) return unclean;
  if (auto error = incomplete(run)) return *error;
  if (report.verdict != Verdict::clean) return unclean;
  if (semantics == CallSemantics::mpi || recorded_semantics(run) == CallSemantics::mpi)
    return refusal("MPI leaves open what blocks a rank", "", "judge the run with lockstep verify");
  const bool device =
      semantics == CallSemantics::nccl || recorded_semantics(run) == CallSemantics::nccl;
  return RunWriter(run, device).write();
}

}  // namespace lockstep::verify
