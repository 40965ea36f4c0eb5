#include "verify/product/sequences.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/product/sequence_reader.h"
#include "verify/replay/semantics.h"

namespace lockstep::verify {

class SequenceCutter {
 public:
  explicit SequenceCutter(const trace::Derivation& derivation)
      : derivation_(derivation), reader_(out_, derivation.spec.world_size) {
    out_.ranks_ = static_cast<std::size_t>(derivation_.spec.world_size);
    const std::size_t conditions = derivation_.spec.conditions.size();
    out_.per_previous_ = derivation_.spec.looks_back ? static_cast<std::uint32_t>(conditions) : 0;
    out_.width_ = ProductSequences::kFirstCondition +
                  conditions * std::max<std::size_t>(out_.per_previous_, 1);
    out_.parts_.resize(derivation_.runs.size() * out_.ranks_ * out_.width_);
    out_.raises_.resize(derivation_.runs.size() * out_.ranks_);
  }

  ProductSequences cut() {
    for (std::uint32_t h = 0; h < derivation_.runs.size(); ++h) {
      history_ = HistoryId(h);
      if (recorded_semantics(derivation_.runs[h]) == CallSemantics::mpi) {
        reader_.add_reason(
            "MPI programs are not judged as a product: what blocks them is left open by MPI");
        break;
      }
      reader_.enter(derivation_.runs[h], derivation_.spec.histories[h].folder);
      // Every trace: a first step may be known although later ones are not.
      for (const trace::RankTrace& trace : derivation_.runs[h].ranks) cut_trace(trace);
    }
    share_within_classes();
    mark_channels_of_copies();
    if (out_.inconclusive.empty()) compare_histories();
    return std::move(out_);
  }

 private:
  // Only one rank of each class has a trace: the others share its sequences.
  void share_within_classes() {
    const std::vector<std::int32_t> traced_by = trace::traced_ranks(derivation_.spec);
    for (std::size_t h = 0; h < derivation_.runs.size(); ++h) {
      for (std::size_t r = 0; r < out_.ranks_; ++r) {
        const auto traced = static_cast<std::size_t>(traced_by[r]);
        if (traced == r) continue;
        const auto row = [&](std::size_t rank) {
          return out_.parts_.begin() +
                 static_cast<std::ptrdiff_t>((h * out_.ranks_ + rank) * out_.width_);
        };
        std::copy_n(row(traced), out_.width_, row(r));
        out_.raises_[h * out_.ranks_ + r] = out_.raises_[h * out_.ranks_ + traced];
      }
    }
  }

  void mark_channels_of_copies() {
    const std::int32_t size = derivation_.spec.copy_ranks;
    if (size == 0 || size == derivation_.spec.world_size) return;
    for (ProductChannel& channel : out_.channels) {
      if (channel.members.empty()) continue;
      channel.of_copy =
          channel.members.lowest().value / size == channel.members.highest().value / size;
    }
  }

  // What comes before step 0 cannot depend on its condition, and what comes after the last step is
  // taken not to.
  void compare_histories() {
    for (const std::uint32_t part : {ProductSequences::kStart, ProductSequences::kEnd}) {
      for (std::int32_t r = 0; r < derivation_.spec.world_size; ++r) {
        SequenceId known = kNoSequence;
        for (std::uint32_t h = 0; h < derivation_.runs.size(); ++h) {
          const SequenceId sequence = out_.part(HistoryId(h), r, part).sequence;
          if (sequence == kNoSequence) continue;  // it ended with an exception
          if (known != kNoSequence && known != sequence) {
            reader_.add_reason(fmt::format(
                "rank {}: what it does {} differs between the histories", r,
                part == ProductSequences::kStart ? "before step 0" : "after the last step"));
            break;
          }
          known = sequence;
        }
      }
    }
  }

  // A part of a trace. It ends where the next call is of a later step:
  //
  //   broadcast   all_reduce   all_reduce   (end of step 1)   barrier
  //   no step     step 0       step 1                         no step
  //   start       step 0       step 1                         end
  struct Cut {
    std::int64_t step = kBefore;
    std::uint32_t begin = 0, end = 0;
    bool late_calls = false;  // of step 1: calls of step 0 are among them
  };
  static constexpr std::int64_t kBefore = -1;
  std::int64_t last_step() const { return derivation_.spec.last_step(); }

  // The step that a mark shows the rank to be in; kBefore: the event is not a mark.
  std::int64_t step_after_mark(const trace::RankTrace& trace, const trace::Event& event) const {
    if (event.kind == trace::EventKind::step)
      return std::min(trace.steps[event.index].n, last_step()) + 1;
    if (event.kind == trace::EventKind::modality) return trace.modalities[event.index].n;
    return kBefore;
  }

  void cut_trace(const trace::RankTrace& trace) {
    std::vector<Cut> cuts = {Cut{}};
    std::int64_t reached = kBefore;  // the step that the rank is in, by its marks and calls
    for (std::uint32_t e = 0; e < trace.events.size(); ++e) {
      const trace::Event& event = trace.events[e];
      reached = std::max(reached, step_after_mark(trace, event));
      if (event.kind != trace::EventKind::issue) continue;
      const std::int64_t step = trace.calls[event.index].step;
      std::int64_t part = step;
      if (step == trace::kNone) part = cuts.back().step == kBefore ? kBefore : last_step() + 1;
      if (step > last_step())
        return reader_.add_reason(trace, fmt::format("step {} is not in \"steps\"", step));
      if (part == 0 && cuts.back().step == 1) {
        cuts.back().late_calls = true;
        continue;
      }
      if (part < cuts.back().step)
        return reader_.add_reason(
            trace, step == trace::kNone ? "a call between the steps has no step"
                                        : fmt::format("the steps do not grow, or a call between "
                                                      "two of them says no step ({})",
                                                      step));
      reached = std::max(reached, part);
      if (part == cuts.back().step) continue;
      cuts.back().end = e;
      cuts.push_back({part, e, e, false});
    }
    cuts.back().end = static_cast<std::uint32_t>(trace.events.size());
    if (trace.end == trace::End::exception) {
      if (reached > last_step())
        return reader_.add_reason(trace, "it raised an exception after the last step");
      note_raise(trace, reached, cuts);
    }
    store(trace, cuts);
  }

  // Takes the part in which the rank raised an exception off `cuts`: what it would have done in the
  // rest of it is unknown.
  void note_raise(const trace::RankTrace& trace, std::int64_t reached, std::vector<Cut>& cuts) {
    RecordedRaise raise;
    raise.step = std::max<std::int64_t>(reached, 0);
    raise.what = trace.exceptions.empty() ? "" : trace.exceptions.back().what;
    raise.begin = raise.end = static_cast<std::uint32_t>(trace.events.size());
    if (cuts.back().step == raise.step) {
      raise.begin = cuts.back().begin;
      cuts.pop_back();
    }
    out_.raises_[index_of(trace)] = std::move(raise);
  }

  std::size_t index_of(const trace::RankTrace& trace) const {
    return std::size_t{history_.value} * out_.ranks_ + static_cast<std::size_t>(trace.rank.value);
  }

  void store(const trace::RankTrace& trace, const std::vector<Cut>& cuts) {
    const std::optional<RecordedRaise>& raise = out_.raises_[index_of(trace)];
    const std::int64_t after_last = raise ? raise->step : last_step() + 2;
    SequenceId second = kNoSequence;  // step 1 without the late calls
    std::size_t next = 0;
    for (std::int64_t step = kBefore; step <= last_step() + 1 && (step < after_last || step < 0);
         ++step) {
      Cut cut{step, 0, 0, false};  // a step without calls
      if (next < cuts.size() && cuts[next].step == step) cut = cuts[next++];
      const RecordedPart recorded{reader_.read(trace, cut.begin, cut.end), cut.begin, cut.end};
      if (step == 1 && derivation_.spec.has_seconds()) {
        slot_of(trace, ProductSequences::kSecond) = recorded;
        continue;
      }
      if (cut.late_calls) {
        second = reader_.read(trace, cut.begin, cut.end, {.without_step = 0});
        slot_of(trace, ProductSequences::kSecond) = recorded;
        out_.has_late_calls_ = true;
        continue;
      }
      RecordedPart& slot = slot_of(trace, part_of(step));
      if (slot.sequence == kNoSequence) slot = recorded;
      if (slot.sequence != recorded.sequence) return not_stationary(trace, step);
    }
    if (second == kNoSequence) return;
    const SequenceId later = slot_of(trace, part_of(1)).sequence;
    if (later != kNoSequence && later != second) not_stationary(trace, 1);
  }

  RecordedPart& slot_of(const trace::RankTrace& trace, std::uint32_t part) {
    return out_.parts_[index_of(trace) * out_.width_ + part];
  }

  void not_stationary(const trace::RankTrace& trace, std::int64_t step) {
    const trace::ProductSpec& spec = derivation_.spec;
    const auto name = [&](std::int64_t of) {
      return printable(spec.conditions[spec.recorded_condition(history_, of).value].name);
    };
    reader_.add_reason(
        trace,
        fmt::format("step {} under \"{}\"{} is not what another step under it was: what a step "
                    "does depends on more than its condition{} and that of the first step",
                    step, name(step),
                    spec.looks_back ? fmt::format(" after one under \"{}\"", name(step - 1)) : "",
                    spec.looks_back ? ", that of the step before," : ""));
  }

  std::uint32_t part_of(std::int64_t step) const {
    if (step == kBefore) return ProductSequences::kStart;
    if (step == 0) return ProductSequences::kFirst;
    if (step > last_step()) return ProductSequences::kEnd;
    return out_.under(derivation_.spec.recorded_condition(history_, step - 1),
                      derivation_.spec.recorded_condition(history_, step));
  }

  const trace::Derivation& derivation_;
  ProductSequences out_;
  SequenceReader reader_;  // into out_
  HistoryId history_;
};

ProductSequences cut_sequences(const trace::Derivation& derivation) {
  return SequenceCutter(derivation).cut();
}

}  // namespace lockstep::verify
