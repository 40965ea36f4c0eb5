#include "verify/numbers/value_table.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "base/text.h"
#include "trace/signature.h"

namespace lockstep::verify {

namespace {

Phase phase_of(const trace::StateMark& mark) {
  switch (mark.kind) {
    case trace::StateMark::Kind::param:
      return Phase::param;
    case trace::StateMark::Kind::buffer:
      return Phase::buffer;
    case trace::StateMark::Kind::optim:
      return Phase::optim;
    case trace::StateMark::Kind::grad:
      break;
  }
  switch (mark.when) {
    case trace::StateMark::When::local:
      return Phase::local_grad;
    case trace::StateMark::When::synced:
      return Phase::synced_grad;
    case trace::StateMark::When::unspecified:
      break;
  }
  return Phase::other_grad;
}

struct Entry {
  std::int64_t n = 0;
  Phase phase{};
  std::uint32_t name_index = 0;
  std::uint32_t rank = 0;
  std::uint32_t mark = 0;

  auto key() const { return std::tie(n, phase, name_index, rank, mark); }
  bool same_value(const Entry& other) const {
    return n == other.n && phase == other.phase && name_index == other.name_index &&
           rank == other.rank;
  }
};

// Numbers names in the order in which ranks first mention them.
class NameIndices {
 public:
  std::uint32_t of(trace::StringId name) {
    return indices_.try_emplace(name.value, static_cast<std::uint32_t>(indices_.size()))
        .first->second;
  }

 private:
  std::unordered_map<std::uint32_t, std::uint32_t> indices_;
};

std::vector<Entry> sorted_entries(const trace::Run& run, const ValueTable::Counts& counts,
                                  std::int64_t end) {
  std::vector<Entry> out;
  NameIndices name_indices;
  for (std::uint32_t r = 0; r < run.ranks.size(); ++r) {
    const std::vector<trace::StateMark>& states = run.ranks[r].states;
    for (std::uint32_t m = 0; m < states.size(); ++m) {
      if (states[m].n >= end || (counts && !counts(r, states[m].name))) continue;
      out.push_back({states[m].n, phase_of(states[m]), name_indices.of(states[m].name), r, m});
    }
  }
  const auto less = [](const Entry& a, const Entry& b) { return a.key() < b.key(); };
  std::sort(out.begin(), out.end(), less);

  // Keeps one entry per value: the last one. If a step has several local gradients, the first one,
  // too: it was recorded before backward added to it.
  std::vector<Entry> kept;
  for (std::size_t i = 0, next = 0; i < out.size(); i = next) {
    while (next < out.size() && out[next].same_value(out[i])) ++next;
    if (out[i].phase == Phase::local_grad && next - i > 1) {
      kept.push_back(out[i]);
      kept.back().phase = Phase::leftover;
    }
    kept.push_back(out[next - 1]);
  }
  std::sort(kept.begin(), kept.end(), less);
  return kept;
}

// What each rank records of itself, and replicas do not share.
bool is_of_one_rank(std::string_view name) {
  const std::string_view number = number_name(name);
  return name.starts_with(kLeftover) || number == kDifferentRandom || number == kDataSet;
}

}  // namespace

const trace::StateMark* ValueRow::of(std::uint32_t rank) const {
  const auto found = std::lower_bound(readings.begin(), readings.end(), rank,
                                      [](const Reading& r, std::uint32_t x) { return r.rank < x; });
  return found != readings.end() && found->rank == rank ? found->mark : nullptr;
}

bool ValueRow::sharded() const {
  return !replicated && std::any_of(readings.begin(), readings.end(),
                                    [](const Reading& r) { return r.mark->sharded; });
}

ValueTable::ValueTable(const trace::Run& run, const Counts& counts, bool all_replicated,
                       std::int64_t end) {
  for (const Entry& e : sorted_entries(run, counts, end)) {
    const trace::StateMark& mark = run.ranks[e.rank].states[e.mark];
    const bool same = !rows_.empty() && rows_.back().n == e.n && rows_.back().phase == e.phase &&
                      rows_.back().name_index == e.name_index;
    if (!same) {
      const bool replicated = all_replicated && !is_of_one_rank(run.tables.str(mark.name));
      rows_.push_back({e.n, e.phase, mark.name, e.name_index, {}, replicated});
    }
    rows_.back().readings.push_back({e.rank, &mark});
  }
  std::map<std::pair<Phase, std::uint32_t>, std::vector<const ValueRow*>> by_name_index;
  for (const ValueRow& row : rows_) by_name_index[{row.phase, row.name_index}].push_back(&row);
  for (auto& [key, rows] : by_name_index) {
    series_of_[{key.first, rows.front()->name.value}] = series_.size();
    series_.push_back({key.first, rows.front()->name, std::move(rows)});
  }
}

const Series* ValueTable::series(Phase phase, trace::StringId name) const {
  const auto found = series_of_.find({phase, name.value});
  return found == series_of_.end() ? nullptr : &series_[found->second];
}

const ValueRow* ValueTable::row(Phase phase, trace::StringId name, std::int64_t n) const {
  const Series* of_name = series(phase, name);
  if (of_name == nullptr) return nullptr;
  const ValueRow* found = row_before(*of_name, n);
  return found != nullptr && found->n == n ? found : nullptr;
}

std::span<const ValueRow> ValueTable::rows(Phase phase, std::int64_t n) const {
  const auto key = [](const ValueRow& row) { return std::pair(row.n, row.phase); };
  const std::pair wanted(n, phase);
  const auto first = std::partition_point(rows_.begin(), rows_.end(),
                                          [&](const ValueRow& row) { return key(row) < wanted; });
  const auto last = std::partition_point(first, rows_.end(),
                                         [&](const ValueRow& row) { return key(row) == wanted; });
  return {first, last};
}

const ValueRow* row_before(const Series& series, std::int64_t n) {
  const auto after = std::partition_point(series.rows.begin(), series.rows.end(),
                                          [&](const ValueRow* row) { return row->n <= n; });
  return after == series.rows.begin() ? nullptr : *(after - 1);
}

std::int64_t elements_of(const trace::Run& run, const trace::StateMark& mark) {
  if (mark.shape.value == 0) return 0;
  trace::IntList flat = run.tables.int_lists[mark.shape];
  flat.push_back(-1);
  return trace::total_elements(flat);
}

std::string_view number_name(std::string_view name) {
  constexpr std::string_view kModel = "model";  // of a second model: "model2."
  if (name.starts_with(kModel)) {
    const std::size_t dot = name.find_first_not_of("0123456789", kModel.size());
    if (dot != kModel.size() && dot != std::string_view::npos && name[dot] == '.')
      name.remove_prefix(dot + 1);
  }
  return name.substr(0, name.find_first_of("/@"));
}

std::string phase_name(Phase phase, std::uint64_t count) {
  switch (phase) {
    case Phase::leftover:
    case Phase::local_grad:
    case Phase::synced_grad:
    case Phase::other_grad:
      return plural(count, "gradient");
    case Phase::optim:
      return plural(count, "optimizer value");
    case Phase::param:
      return plural(count, "parameter");
    case Phase::buffer:
      return plural(count, "buffer");
  }
  return {};
}

}  // namespace lockstep::verify
