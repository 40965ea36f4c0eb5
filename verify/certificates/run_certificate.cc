#include "verify/certificates/run_certificate.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "base/text.h"
#include "verify/certificates/certificate.h"
#include "verify/product/decide.h"
#include "verify/product/order_graph.h"
#include "verify/product/sequence_reader.h"

namespace lockstep::verify {

namespace {

constexpr const char* kCannotTell =
    "only a complete recording of a run that ended well can be certified";

Error refusal(const std::string& why, const std::string& file, const std::string& fix) {
  return Error{"there is no certificate: " + why, {file}, fix};
}

// What a trace must be so that it shows all that its rank did.
std::optional<Error> incomplete(const trace::RankTrace& trace) {
  const auto error = [&](const std::string& why) {
    return refusal("rank " + std::to_string(trace.rank.value) + ": " + why, trace.source,
                   kCannotTell);
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

std::optional<Error> incomplete(const trace::Run& run) {
  if (!run.unreadable.empty()) return run.unreadable.front().error;
  if (!run.header_conflicts.empty()) {
    return refusal("the traces contradict each other: " + printable(run.header_conflicts.front()),
                   "", kCannotTell);
  }
  if (run.ranks.size() != static_cast<std::size_t>(run.world_size) || run.ranks.empty()) {
    return refusal("traces of " + std::to_string(run.ranks.size()) + " of " +
                       plural(static_cast<std::uint64_t>(run.world_size), "rank") + " were given",
                   "", kCannotTell);
  }
  for (const trace::RankTrace& trace : run.ranks) {
    if (auto error = incomplete(trace)) return error;
  }
  return std::nullopt;
}

// Asynchronous calls, and not one wait.
bool hides_waits(const trace::RankTrace& trace) {
  const bool any_async =
      std::any_of(trace.calls.begin(), trace.calls.end(),
                  [](const trace::Call& call) { return call.has(trace::kAsync); });
  return any_async &&
         std::none_of(trace.events.begin(), trace.events.end(),
                      [](const trace::Event& e) { return e.kind == trace::EventKind::wait; });
}

// How many calls lack what others could be told apart by.
struct Unrecorded {
  std::uint64_t names = 0, sizes = 0, types = 0, reduce_operations = 0, roots = 0;

  explicit Unrecorded(const trace::Run& run) {
    for (const trace::RankTrace& trace : run.ranks) {
      for (const trace::Call& call : trace.calls) add(run.tables.signatures[call.signature], call);
    }
  }

 private:
  void add(const trace::Signature& s, const trace::Call& call) {
    if (s.op == trace::Op::barrier) return;
    const bool rooted = s.op == trace::Op::broadcast || s.op == trace::Op::reduce ||
                        s.op == trace::Op::gather || s.op == trace::Op::scatter;
    names += !trace::is_point_to_point(s.op) && call.what.value == 0 ? 1U : 0U;
    sizes +=
        s.op != trace::Op::other && s.in_elements == trace::kNone && s.out_elements == trace::kNone
            ? 1U
            : 0U;
    types += s.dtypes.value == 0 ? 1U : 0U;
    reduce_operations += trace::is_reduction(s.op) && s.redop.value == 0 ? 1U : 0U;
    roots += rooted && s.root == trace::kNone ? 1U : 0U;
  }
};

class RunWriter {
 public:
  RunWriter(const trace::Run& run, bool device) : run_(run), device_(device) {}

  Result<std::string> write() {
    read();
    if (!table_.disputed_groups.empty()) {
      return refusal("ranks give group \"" + printable(table_.disputed_groups.front()) +
                         "\" different members",
                     "", kCannotTell);
    }
    if (!table_.inconclusive.empty()) return refusal(table_.inconclusive.front(), "", kCannotTell);
    compare_choices(table_, evaluation_);
    if (!evaluation_.disagreeing.empty()) {
      const ProductChannel& channel = table_.channels[evaluation_.disagreeing.front()];
      return refusal("whether the calls in " + channel_words(channel) +
                         " are the same ones cannot be told: they are not recorded alike by all "
                         "its members",
                     "", "record the same things of all calls, on all ranks");
    }
    const auto held = order_meetings(table_, distinct_sequences(evaluation_), device_).held;
    if (!held.empty()) {
      return refusal(
          "no one order of the calls suits all ranks; call " + std::to_string(held.front().place) +
              " of " + channel_words(table_.channels[held.front().channel]) + " is held up",
          "",
          hidden_.empty() ? "make every rank come to its groups in the same order"
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
      const std::uint32_t sequence = reader.read(
          trace, 0, static_cast<std::uint32_t>(trace.events.size()), {.all_block = hides});
      evaluation_.choices.push_back({sequence});
    }
  }

  std::string text() {
    CertificateText out(table_);
    out.line("lockstep-certificate 1");
    out.line("kind run");
    out.line("digest sha256");
    out.line("ranks " + std::to_string(run_.world_size));
    out.line("order " + std::string(device_ ? "device" : "host"));
    for (const std::string& unknown : run_.unknown) out.line("assume " + certificate_word(unknown));
    const Unrecorded lacks(run_);
    const auto count = [&](const std::string& what, std::uint64_t calls) {
      if (calls > 0) out.line("unrecorded " + what + " " + std::to_string(calls));
    };
    count("names", lacks.names);
    count("sizes", lacks.sizes);
    count("types", lacks.types);
    count("reduce-operations", lacks.reduce_operations);
    count("roots", lacks.roots);
    if (!hidden_.empty()) out.line("unrecorded waits ranks " + ranges(hidden_));
    out.groups({&run_, 1});
    std::map<std::uint32_t, std::vector<std::int32_t>> ranks;  // by sequence: ids grow with ranks
    for (std::size_t r = 0; r < evaluation_.choices.size(); ++r)
      ranks[evaluation_.choices[r].front()].push_back(static_cast<std::int32_t>(r));
    for (const auto& [sequence, mine] : ranks)
      out.line("sequence ranks " + ranges(mine) + " " + out.digest(sequence));
    out.meetings(evaluation_, device_);
    return std::move(out).sealed();
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
  const Error unclean = refusal("the verdict is \"" + std::string(to_string(report.verdict)) + "\"",
                                "", "the report says why; mend that first");
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
