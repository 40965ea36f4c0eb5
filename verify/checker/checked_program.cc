#include "verify/checker/checked_program.h"

#include <map>
#include <utility>

namespace lockstep::checked {

namespace {

class ProgramReader {
 public:
  explicit ProgramReader(const Derivation& derivation)
      : d_(derivation), reader_(derivation.spec.world_size) {}

  Result<ProgramParts> read() {
    for (const Run& run : d_.runs) reader_.declare(run);
    for (const Run& run : d_.runs) {
      reader_.enter(run);
      std::map<std::int32_t, Parts> traces;  // by rank
      for (const RankTrace& trace : run.ranks) {
        if (reader_.error()) return *reader_.error();
        traces.emplace(trace.rank.value, parts_of(trace));
      }
      out_.of.emplace_back();
      for (const std::int32_t rank : traced_ranks(d_.spec))
        out_.of.back().push_back(traces.at(rank));
    }
    if (reader_.error()) return *reader_.error();
    out_.table = std::move(reader_).take();
    return std::move(out_);
  }

 private:
  using Parts = std::vector<std::uint32_t>;

  // Slots are the start, step 0, the later steps and the end, by time; each is a stretch of events.
  struct Slots {
    std::vector<Stretch> stretches;
    bool late = false;  // calls of step 0 among those of step 1
  };

  std::size_t steps() const { return d_.spec.steps.size(); }

  Slots slots_of(const RankTrace& trace) {
    Slots out;
    out.stretches.resize(steps() + 3);
    std::size_t slot = 0;
    for (std::uint32_t e = 0; e < trace.events.size(); ++e) {
      if (trace.events[e].kind != EventKind::issue) continue;
      const std::int32_t step = trace.calls[trace.events[e].index].step;
      std::size_t to = slot == 0 ? 0 : steps() + 2;
      if (step != kNone) {
        if (step < 0 || static_cast<std::size_t>(step) > steps()) {
          reader_.refuse(trace, "it has too many steps");
          return out;
        }
        to = static_cast<std::size_t>(step) + 1;
      }
      if (to == 1 && slot == 2) {
        out.late = true;
      } else if (to < slot) {
        reader_.refuse(trace, "its calls are in no order of steps");
        return out;
      } else if (to > slot) {
        out.stretches[slot].end = e;
        slot = to;
        out.stretches[slot].begin = e;
      }
    }
    out.stretches[slot].end = static_cast<std::uint32_t>(trace.events.size());
    return out;
  }

  std::size_t part_of(std::size_t slot) const {
    if (slot == 0) return ProgramParts::kStart;
    if (slot == 1) return ProgramParts::kFirst;
    if (slot == steps() + 2) return ProgramParts::kEnd;
    return ProgramParts::kFirstCondition + d_.spec.steps[slot - 2];
  }

  Parts parts_of(const RankTrace& trace) {
    Parts out(ProgramParts::kFirstCondition + d_.spec.conditions.size(), ProgramParts::kMissing);
    if (trace.end != End::clean || !trace.exceptions.empty())
      reader_.refuse(trace, "its trace does not end well");
    const Slots slots = slots_of(trace);
    std::uint32_t rest_of_second = ProgramParts::kMissing;
    for (std::size_t s = 0; s < slots.stretches.size() && !reader_.error(); ++s) {
      Stretch stretch = slots.stretches[s];
      const std::uint32_t body = reader_.read(trace, stretch);
      if (s == 2 && slots.late) {
        out[ProgramParts::kSecond] = body;
        out_.second_alone = true;
        stretch.without_step = 0;
        rest_of_second = reader_.read(trace, stretch);
        continue;
      }
      std::uint32_t& part = out[part_of(s)];
      if (part == ProgramParts::kMissing) part = body;
      if (part != body)
        reader_.refuse(trace, "step " + std::to_string(s - 1) + " is not what it was before");
    }
    if (rest_of_second == ProgramParts::kMissing || reader_.error()) return out;
    const std::uint32_t later = out[part_of(2)];
    if (later != ProgramParts::kMissing && later != rest_of_second)
      reader_.refuse(trace, "but for the late calls, step 1 is not what it is later");
    return out;
  }

  const Derivation& d_;
  PartReader reader_;
  ProgramParts out_;
};

}  // namespace

Result<ProgramParts> read_program(const Derivation& derivation) {
  return ProgramReader(derivation).read();
}

}  // namespace lockstep::checked
