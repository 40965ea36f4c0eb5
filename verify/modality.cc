#include "verify/modality.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <unordered_set>
#include <utility>

namespace lockstep::verify {

Modalities::Modalities(const trace::Run& run) : run_(run), ranks_(run.ranks.size()) {
  bool micro_batches = false;
  for (std::size_t r = 0; r < run.ranks.size(); ++r) {
    const trace::RankTrace& trace = run.ranks[r];
    if (trace.modalities.empty()) continue;
    Marked* last = nullptr;
    for (const trace::Event& event : trace.events) {
      if (event.kind == trace::EventKind::modality) {
        const trace::ModalityMark& mark = trace.modalities[event.index];
        std::vector<Marked>& of_step = ranks_[r].by_step[mark.n];
        last = &of_step.emplace_back(Marked{mark.has});
        micro_batches |= of_step.size() > 1;
      } else if (event.kind == trace::EventKind::span && last != nullptr) {
        // A span has no step of its own: it belongs to the line before it.
        const trace::StringId name = trace.spans[event.index].name;
        last->stood_in |= run.tables.str(name).starts_with(trace::kRemedySpan);
      }
    }
  }
  if (!micro_batches) return;
  for (std::size_t r = 0; r < run.ranks.size(); ++r) number_calls(run.ranks[r], ranks_[r]);
}

void Modalities::number_calls(const trace::RankTrace& trace, OfRank& rank) {
  rank.micro.assign(trace.calls.size(), trace::kNone);
  std::unordered_map<std::int64_t, std::int32_t> seen;  // lines so far, by step
  for (const trace::Event& event : trace.events) {
    if (event.kind == trace::EventKind::modality) ++seen[trace.modalities[event.index].n];
    if (event.kind != trace::EventKind::issue) continue;
    const auto lines = seen.find(trace.calls[event.index].step);
    if (lines != seen.end()) rank.micro[event.index] = lines->second - 1;
  }
}

BatchNumber Modalities::batch_of(std::uint32_t rank, std::uint32_t call) const {
  const std::vector<std::int32_t>& micro = ranks_[rank].micro;
  return {run_.ranks[rank].calls[call].step, micro.empty() ? trace::kNone : micro[call]};
}

std::vector<BatchNumber> Modalities::before(std::uint32_t rank, BatchNumber batch) const {
  std::vector<BatchNumber> out;
  for (const auto& [n, lines] : ranks_[rank].by_step) {
    const auto step = static_cast<std::int32_t>(n);
    if (step > batch.step) continue;
    if (batch.micro == trace::kNone) {
      if (step < batch.step) out.push_back({step, trace::kNone});
      continue;
    }
    for (std::int32_t micro = 0; micro < static_cast<std::int32_t>(lines.size()); ++micro) {
      if (BatchNumber{step, micro} < batch) out.push_back({step, micro});
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<Modalities::Marked> Modalities::marked(std::uint32_t rank, BatchNumber batch) const {
  const auto found = ranks_[rank].by_step.find(batch.step);
  if (batch.step == trace::kNone || found == ranks_[rank].by_step.end()) return {};
  if (batch.micro == trace::kNone) return found->second;
  const auto micro = static_cast<std::size_t>(batch.micro);
  if (micro >= found->second.size()) return {};
  return {found->second[micro]};
}

bool Modalities::stood_in(std::uint32_t rank, BatchNumber batch) const {
  const std::vector<Marked> lines = marked(rank, batch);
  return std::any_of(lines.begin(), lines.end(), [](const Marked& line) { return line.stood_in; });
}

std::optional<std::vector<std::string>> Modalities::held(std::uint32_t rank,
                                                         BatchNumber batch) const {
  const std::vector<Marked> lines = marked(rank, batch);
  if (lines.empty()) return std::nullopt;
  std::set<std::string> names;
  for (const Marked& line : lines) {
    for (std::string& name : run_.tables.names(line.has)) names.insert(std::move(name));
  }
  return std::vector<std::string>(names.begin(), names.end());
}

std::vector<std::string> Modalities::lacking(std::uint32_t rank, std::uint32_t other,
                                             BatchNumber batch) const {
  const auto mine = held(rank, batch);
  const auto theirs = held(other, batch);
  std::vector<std::string> out;
  if (!mine || !theirs) return out;
  std::set_difference(theirs->begin(), theirs->end(), mine->begin(), mine->end(),
                      std::back_inserter(out));
  return out;
}

namespace {

// The calls of one batch in program order: [first, last) of RankTrace::calls. They are consecutive,
// because steps and micro-batches only grow.
struct BatchCalls {
  std::size_t first = 0, last = 0;
};

BatchCalls calls_of(const trace::RankTrace& trace, const Modalities& modalities, std::uint32_t rank,
                    BatchNumber batch) {
  const auto count = static_cast<std::uint32_t>(trace.calls.size());
  const auto in_batch = [&](std::uint32_t c) {
    return batch.micro == trace::kNone ? trace.calls[c].step == batch.step
                                       : modalities.batch_of(rank, c) == batch;
  };
  std::uint32_t first = 0;
  while (first < count && !in_batch(first)) ++first;
  std::uint32_t last = first;
  while (last < count && in_batch(last)) ++last;
  return {first, last};
}

// Whether the trace ends with the batch: the rank may not have finished it.
bool ends_within(const trace::RankTrace& trace, BatchCalls calls) {
  return calls.last == trace.calls.size();
}

// The batches before this one, the latest first. 64 of them suffice: with random ones a combination
// recurs within a few. Steps count whether or not the trace says what they held.
std::vector<BatchNumber> latest_before(const Modalities& modalities, std::uint32_t rank,
                                       BatchNumber batch) {
  constexpr std::size_t kFarBack = 64;
  std::vector<BatchNumber> out;
  if (batch.micro == trace::kNone) {
    for (std::int32_t step = batch.step - 1; step >= 0 && out.size() < kFarBack; --step)
      out.push_back({step, trace::kNone});
    return out;
  }
  out = modalities.before(rank, batch);
  std::reverse(out.begin(), out.end());
  if (out.size() > kFarBack) out.resize(kFarBack);
  return out;
}

// The parameters that a batch's calls carry, in order.
std::vector<trace::StringId> names_in(const trace::Run& run, const trace::RankTrace& trace,
                                      BatchCalls calls) {
  std::vector<trace::StringId> out;
  for (std::size_t c = calls.first; c < calls.last; ++c) {
    const auto& names = run.tables.name_lists[trace.calls[c].what];
    out.insert(out.end(), names.begin(), names.end());
  }
  return out;
}

}  // namespace

std::vector<std::string> left_out(const trace::Run& run, const Modalities& modalities,
                                  std::uint32_t rank, std::uint32_t other, BatchNumber batch) {
  if (batch.step == trace::kNone) return {};
  const trace::RankTrace& mine = run.ranks[rank];
  const trace::RankTrace& theirs = run.ranks[other];
  const BatchCalls own = calls_of(mine, modalities, rank, batch);
  BatchCalls model = calls_of(theirs, modalities, other, batch);
  if (ends_within(theirs, model)) {
    // `other` may hang in this batch. The latest one with the same modalities shows what it would
    // have issued.
    const auto held = modalities.held(other, batch);
    for (const BatchNumber& candidate : latest_before(modalities, other, batch)) {
      const BatchCalls calls = calls_of(theirs, modalities, other, candidate);
      if (calls.first == calls.last || modalities.held(other, candidate) != held) continue;
      model = calls;
      break;
    }
  }
  std::vector<trace::StringId> expected = names_in(run, theirs, model);
  const std::vector<trace::StringId> issued = names_in(run, mine, own);
  if (own.first < own.last && ends_within(mine, own)) {
    // `rank` is still in the batch: calls after its current one may still follow. Its current call
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
