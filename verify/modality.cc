#include "verify/modality.h"

#include <algorithm>
#include <iterator>

namespace lockstep::verify {

namespace {

// The steps in which the rank recorded a remedy's span. A span has no step of its own: it belongs
// to the step of the modality event before it.
std::unordered_set<std::int64_t> steps_with_stand_in(const trace::RankTrace& trace,
                                                     const trace::Tables& tables) {
  std::unordered_set<std::int64_t> out;
  if (trace.spans.empty()) return out;
  std::optional<std::int64_t> step;
  for (const trace::Event& event : trace.events) {
    if (event.kind == trace::EventKind::modality) step = trace.modalities[event.index].n;
    if (event.kind != trace::EventKind::span || !step) continue;
    if (tables.str(trace.spans[event.index].name).starts_with("remedy.")) out.insert(*step);
  }
  return out;
}

}  // namespace

Modalities::Modalities(const trace::Run& run)
    : run_(run), by_step_(run.ranks.size()), stand_ins_(run.ranks.size()) {
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    for (const trace::ModalityMark& mark : run.ranks[r].modalities) by_step_[r][mark.n] = mark.has;
    stand_ins_[r] = steps_with_stand_in(run.ranks[r], run.tables);
  }
}

bool Modalities::stood_in(std::uint32_t rank, std::int32_t step) const {
  return stand_ins_[rank].contains(step);
}

std::optional<std::vector<std::string>> Modalities::held(std::uint32_t rank,
                                                         std::int32_t step) const {
  const auto found = by_step_[rank].find(step);
  if (step == trace::kNone || found == by_step_[rank].end()) return std::nullopt;
  std::vector<std::string> names = run_.tables.names(found->second);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> Modalities::lacking(std::uint32_t rank, std::uint32_t other,
                                             std::int32_t step) const {
  const auto mine = held(rank, step);
  const auto theirs = held(other, step);
  std::vector<std::string> out;
  if (!mine || !theirs) return out;
  std::set_difference(theirs->begin(), theirs->end(), mine->begin(), mine->end(),
                      std::back_inserter(out));
  return out;
}

namespace {

// The calls of one step in program order: [first, last) of RankTrace::calls. They are consecutive,
// because steps only grow.
struct StepCalls {
  std::size_t first = 0, last = 0;
};

StepCalls calls_of_step(const trace::RankTrace& trace, std::int32_t step) {
  const auto in_step = [&](const trace::Call& c) { return c.step == step; };
  const auto first = std::find_if(trace.calls.begin(), trace.calls.end(), in_step);
  const auto last = std::find_if_not(first, trace.calls.end(), in_step);
  return {static_cast<std::size_t>(first - trace.calls.begin()),
          static_cast<std::size_t>(last - trace.calls.begin())};
}

// Whether the trace ends with the step: the rank may not have finished it.
bool ends_within(const trace::RankTrace& trace, StepCalls calls) {
  return calls.last == trace.calls.size();
}

// The parameters that a step's calls carry, in order.
std::vector<trace::StringId> names_in(const trace::Run& run, const trace::RankTrace& trace,
                                      StepCalls calls) {
  std::vector<trace::StringId> out;
  for (std::size_t c = calls.first; c < calls.last; ++c) {
    const auto& names = run.tables.name_lists[trace.calls[c].what];
    out.insert(out.end(), names.begin(), names.end());
  }
  return out;
}

}  // namespace

std::vector<std::string> left_out(const trace::Run& run, const Modalities& modalities,
                                  std::uint32_t rank, std::uint32_t other, std::int32_t step) {
  if (step == trace::kNone) return {};
  const trace::RankTrace& mine = run.ranks[rank];
  const trace::RankTrace& theirs = run.ranks[other];
  const StepCalls own = calls_of_step(mine, step);
  StepCalls model = calls_of_step(theirs, step);
  if (ends_within(theirs, model)) {
    // `other` may hang in this step. The latest step with the same modalities shows what it would
    // have issued. 64 steps back suffice: with random batches a combination recurs within a few.
    const auto held = modalities.held(other, step);
    for (std::int32_t earlier = step - 1; earlier >= 0 && earlier > step - 64; --earlier) {
      const StepCalls candidate = calls_of_step(theirs, earlier);
      if (candidate.first == candidate.last || modalities.held(other, earlier) != held) continue;
      model = candidate;
      break;
    }
  }
  std::vector<trace::StringId> expected = names_in(run, theirs, model);
  const std::vector<trace::StringId> issued = names_in(run, mine, own);
  if (own.first < own.last && ends_within(mine, own)) {
    // `rank` is still in the step: calls after its current one may still follow. Its current call
    // is found in `other`'s order by its first parameter.
    const auto& current = run.tables.name_lists[mine.calls[own.last - 1].what];
    if (!current.empty()) {
      expected.erase(std::find(expected.begin(), expected.end(), current[0]), expected.end());
    }
  }
  const std::unordered_set<trace::StringId> done(issued.begin(), issued.end());
  std::vector<std::string> out;
  for (const trace::StringId name : expected) {
    if (!done.contains(name)) out.push_back(run.tables.str(name));
  }
  return out;
}

}  // namespace lockstep::verify
