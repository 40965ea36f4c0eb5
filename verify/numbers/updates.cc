#include "verify/numbers/updates.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "verify/numbers/rounding.h"
#include "verify/numbers/value_table.h"

namespace lockstep::verify {

namespace {

// Collects a fault over many names and steps into one: with the names of its first step.
class UpdateCollector {
 public:
  void add(const ValueRow& row, std::uint32_t rank) { add(row, rank, row.name); }
  // `name`: of the tensor that the row describes.
  void add(const ValueRow& row, std::uint32_t rank, trace::StringId name) {
    steps_.insert(row.n);
    first_ = std::min(first_, row.n);
    by_step_[row.n][row.name_index] = name;
    ranks_.insert(rank);
  }

  std::vector<UpdateFault> take(bool absent = false) const {
    if (steps_.empty()) return {};
    UpdateFault out;
    out.n = first_;
    for (const auto& [name_index, name] : by_step_.at(first_)) out.names.push_back(name);
    out.ranks.assign(ranks_.begin(), ranks_.end());
    out.steps = steps_.size();
    out.absent = absent;
    return {std::move(out)};
  }

 private:
  std::set<std::int64_t> steps_;
  std::int64_t first_ = INT64_MAX;
  std::map<std::int64_t, std::map<std::uint32_t, trace::StringId>> by_step_;
  std::set<std::uint32_t> ranks_;
};

bool is_zero(const trace::StateMark& mark) { return mark.norm && *mark.norm == 0; }

// Whether a gradient is not zero and equals another one, or is a positive multiple of it (clipped
// or unscaled in between).
bool is_multiple(const trace::Run& run, const trace::StateMark& gradient,
                 const trace::StateMark& of) {
  const bool some = gradient.norm ? *gradient.norm != 0 : norm_estimate(gradient.sketch) != 0;
  if (!some || is_zero(of)) return false;
  if (gradient.hash && gradient.hash == of.hash) return true;
  const Sketch& a = gradient.sketch;
  const Sketch& b = of.sketch;
  constexpr std::size_t kMin = 4;  // shorter sketches, and tiny tensors, are parallel by chance
  if (a.size() < kMin || a.size() != b.size() || elements_of(run, gradient) < 16) return false;
  const double along = dot(a, b);
  const double length = dot(b, b);
  if (length == 0 || along <= 0) return false;
  const double factor = along / length;
  double size = gradient.norm.value_or(0);
  for (const double x : a) size = std::max(size, std::abs(x));
  const double most = rounding_bound(2, kFloat32Roundoff, size);
  return std::equal(a.begin(), a.end(), b.begin(),
                    [&](double x, double y) { return std::abs(x - factor * y) <= most; });
}

// What the trace says about a parameter's gradient in one step on one rank.
enum class Gradient : std::uint8_t { unknown, zero, absent, some };

class Gradients {
 public:
  Gradients(const trace::Run& run, const ValueTable& table) : table_(table) {
    for (const ValueRow& row : table.rows()) {
      synced_ = synced_ || row.phase == Phase::synced_grad;
    }
    phase_ = synced_ ? Phase::synced_grad : Phase::local_grad;
    for (const ValueRow& row : table.rows()) {
      if (row.phase != phase_) continue;
      for (const Reading& r : row.readings) recorded_.insert({r.rank, row.n});
    }
    ranks_ = run.ranks.size();
  }

  Gradient of(trace::StringId name, std::int64_t n, std::uint32_t rank) const {
    const Series* series = table_.series(phase_, name);
    if (series == nullptr) return Gradient::unknown;  // never recorded: perhaps not watched
    const ValueRow* row = table_.row(phase_, name, n);
    if (synced_) return on_rank(row, n, rank);
    // Local gradients: the parameter has a gradient if any rank contributes one, so all ranks' must
    // be known and zero or absent.
    Gradient out = Gradient::unknown;
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      const Gradient one = on_rank(row, n, r);
      if (one == Gradient::some || one == Gradient::unknown) return one;
      out = one == Gradient::zero || out == Gradient::zero ? Gradient::zero : one;
    }
    return out;
  }

 private:
  Gradient on_rank(const ValueRow* row, std::int64_t n, std::uint32_t rank) const {
    const trace::StateMark* mark = row == nullptr ? nullptr : row->of(rank);
    if (mark != nullptr) {
      if (!mark->norm) return Gradient::unknown;
      return is_zero(*mark) ? Gradient::zero : Gradient::some;
    }
    return recorded_.contains({rank, n}) ? Gradient::absent : Gradient::unknown;
  }

  const ValueTable& table_;
  bool synced_ = false;
  Phase phase_{};
  std::size_t ranks_ = 0;
  std::set<std::pair<std::uint32_t, std::int64_t>> recorded_;
};

// How a rank's part of a parameter came through a step.
enum class Move : std::uint8_t { unknown, stayed, changed };

// `size`: how large its change was, as a share of the part, where it changed.
Move move_of(const Reading& now, const ValueRow& before, double& size) {
  const trace::StateMark* then = before.of(now.rank);
  if (then == nullptr || !then->hash || !now.mark->hash) return Move::unknown;
  if (then->hash == now.mark->hash) return Move::stayed;
  const Sketch& a = then->sketch;
  const Sketch& b = now.mark->sketch;
  const double whole = now.mark->norm.value_or(0);
  if (a.empty() || a.size() != b.size() || whole == 0) return Move::unknown;
  size = norm_estimate(sum(b, a, -1)) / whole;
  return Move::changed;
}

// The ranks whose part of a sharded parameter stayed although it should have changed.
std::vector<std::uint32_t> still_in(const trace::Run& run, const ValueRow& before,
                                    const ValueRow& after, const ValueRow& gradient) {
  constexpr double kFarAbove = 100;  // times the rounding of the values: an update, not noise
  constexpr double kLess = 0.1;      // a gradient that is smaller may give an update that is lost
  constexpr std::int64_t kMin = 4;   // elements of a part; fewer may have no gradient by chance
  std::vector<std::uint32_t> still;
  double least_change = 0;
  double largest_gradient = 0;
  for (const Reading& now : after.readings) {
    const trace::StateMark* own = gradient.of(now.rank);
    double size = 0;
    const Move move = move_of(now, before, size);
    if (own == nullptr || !own->norm || move == Move::unknown) return {};
    if (move == Move::stayed) {
      still.push_back(now.rank);
      continue;
    }
    least_change = least_change == 0 ? size : std::min(least_change, size);
    largest_gradient = std::max(largest_gradient, *own->norm);
  }
  const auto roundoff = unit_roundoff(run.tables.str(after.readings.front().mark->dtype));
  if (least_change < kFarAbove * roundoff.value_or(kFloat32Roundoff)) return {};
  std::erase_if(still, [&](std::uint32_t rank) {
    return *gradient.of(rank)->norm < kLess * largest_gradient ||
           elements_of(run, *after.of(rank)) < kMin;
  });
  return still;
}

}  // namespace

std::vector<UpdateFault> find_still(const trace::Run& run, const ValueTable& table) {
  UpdateCollector found;
  for (const Series& series : table.series()) {
    if (series.phase != Phase::param || !series.rows.front()->sharded()) continue;
    for (std::size_t i = 1; i < series.rows.size(); ++i) {
      const ValueRow& after = *series.rows[i];
      const ValueRow* gradient = table.row(Phase::synced_grad, series.name, after.n);
      if (gradient == nullptr || series.rows[i - 1]->n != after.n - 1) continue;
      for (const std::uint32_t rank : still_in(run, *series.rows[i - 1], after, *gradient))
        found.add(after, rank);
    }
  }
  return found.take();
}

namespace {

// Whether a parameter's gradient is zero in the first step alone: it is multiplied by one that is
// initialised with zeros (a factor of LoRA's), but in use.
bool begins_at_zero(const Gradients& gradients, const Series& series) {
  for (std::size_t i = 1; i < series.rows.size(); ++i) {
    for (const Reading& r : series.rows[i]->readings) {
      const Gradient g = gradients.of(series.name, series.rows[i]->n, r.rank);
      if ((g == Gradient::zero) != (i == 1) || (i == 2 && g != Gradient::some)) return false;
    }
  }
  return series.rows.size() > 2;
}

}  // namespace

std::vector<UpdateFault> find_decayed(const trace::Run& run, const ValueTable& table) {
  const Gradients gradients(run, table);
  UpdateCollector zero;
  UpdateCollector absent;
  for (const Series& series : table.series()) {
    if (series.phase != Phase::param) continue;
    for (std::size_t i = 1; i < series.rows.size(); ++i) {
      const ValueRow& before = *series.rows[i - 1];
      const ValueRow& after = *series.rows[i];
      if (after.n != before.n + 1) continue;  // steps between them may have had gradients
      if (i == 1 && begins_at_zero(gradients, series)) continue;
      for (const Reading& now : after.readings) {
        const trace::StateMark* then = before.of(now.rank);
        if (then == nullptr || !then->hash || !now.mark->hash || then->hash == now.mark->hash) {
          continue;
        }
        const Gradient gradient = gradients.of(series.name, after.n, now.rank);
        if (gradient == Gradient::zero) zero.add(after, now.rank);
        if (gradient == Gradient::absent) absent.add(after, now.rank);
      }
    }
  }
  // A gradient that was recorded as zero is the better evidence: an absent one may just not have
  // been recorded.
  std::vector<UpdateFault> out = zero.take();
  if (out.empty()) out = absent.take(true);
  return out;
}

std::optional<Unreduced> find_unreduced(const trace::Run& run, const ValueTable& table) {
  std::optional<Unreduced> out;
  std::set<std::int64_t> steps;
  std::set<std::uint32_t> ranks;
  for (const ValueRow& row : table.rows()) {  // by step
    if (row.phase != Phase::optim) continue;
    const std::string_view name = number_name(run.tables.str(row.name));
    if (name != "lost" && name != "unreduced") continue;
    steps.insert(row.n);
    if (!out) out = Unreduced{row.n, 0, 0, {}};
    for (const Reading& r : row.readings) {
      ranks.insert(r.rank);
      if (name == "lost" && row.n == out->n && r.mark->norm)
        out->backwards = std::max(out->backwards, static_cast<std::size_t>(*r.mark->norm));
    }
  }
  if (!out) return std::nullopt;
  out->steps = steps.size();
  out->ranks.assign(ranks.begin(), ranks.end());
  return out;
}

std::vector<UpdateFault> find_stale_gradients(const trace::Run& run, const ValueTable& table) {
  UpdateCollector found;
  std::unordered_map<std::string_view, trace::StringId> parameters;
  for (const Series& series : table.series()) {
    if (series.phase == Phase::param) parameters.emplace(run.tables.str(series.name), series.name);
  }
  for (const ValueRow& row : table.rows()) {
    const std::string_view name = run.tables.str(row.name);
    if (row.phase == Phase::optim && name.starts_with(kLeftover)) {
      const auto of = parameters.find(name.substr(kLeftover.size()));
      for (const Reading& r : row.readings)
        found.add(row, r.rank, of == parameters.end() ? row.name : of->second);
    }
    if (row.phase != Phase::leftover) continue;
    for (const Reading& r : row.readings) {
      const ValueRow* last = table.row(Phase::synced_grad, row.name, row.n - 1);
      const trace::StateMark* mark = last == nullptr ? nullptr : last->of(r.rank);
      if (mark != nullptr && is_multiple(run, *r.mark, *mark)) found.add(row, r.rank);
    }
  }
  return found.take();
}

namespace {

// How far the updates of each step reach at least: the learning rate, times what scaling and
// clipping leave of a gradient's norm.
class Reach {
 public:
  Reach(const trace::Run& run, const ValueTable& table) {
    for (const ValueRow& row : table.rows()) {
      if (row.phase != Phase::optim) continue;
      const std::string_view name = number_name(run.tables.str(row.name));
      for (const Reading& r : row.readings) {
        if (r.mark->norm) add(steps_[row.n], name, *r.mark->norm);
      }
    }
  }

  // 0: none is due in step n, or nothing is known of it.
  double of(std::int64_t n, double gradient) const {
    const auto found = steps_.find(n);
    if (found == steps_.end() || !found->second.rate || !found->second.stepped) return 0;
    const Step& step = found->second;
    constexpr double kMin = 0.1;  // to which programs clip; what is smaller is not clipped
    return *step.rate * gradient * std::min(1.0, kMin / std::max(step.clipped_from, kMin)) /
           step.scale;
  }

 private:
  struct Step {
    std::optional<double> rate;  // the smallest of all groups and ranks
    bool stepped = true;
    double scale = 1;
    double clipped_from = 0;
  };

  static void add(Step& step, std::string_view name, double value) {
    if (name == "lr") step.rate = std::min(step.rate.value_or(value), value);
    if (name == "stepped") step.stepped = step.stepped && value != 0;
    if (name == "loss_scale") step.scale = std::max(step.scale, value);
    if (name == "clip.norm") step.clipped_from = std::max(step.clipped_from, value);
  }

  std::map<std::int64_t, Step> steps_;
};

struct ParameterChanges {
  bool moved = false;             // in some step, on some rank
  std::vector<std::int64_t> due;  // steps in which it should have changed
};

ParameterChanges changes_of(const trace::Run& run, const ValueTable& table, const Reach& reach,
                            const Series& series) {
  constexpr double kFarAbove = 100;  // times the rounding of the values: an update, not noise
  ParameterChanges out;
  for (std::size_t i = 1; i < series.rows.size() && !out.moved; ++i) {
    const ValueRow& before = *series.rows[i - 1];
    const ValueRow& after = *series.rows[i];
    const ValueRow* gradient = table.row(Phase::synced_grad, series.name, after.n);
    bool due = false;
    for (const Reading& now : after.readings) {
      double size = 0;
      const Move move = move_of(now, before, size);
      out.moved = out.moved || move != Move::stayed;
      const trace::StateMark* own = gradient == nullptr ? nullptr : gradient->of(now.rank);
      if (own == nullptr || !own->norm || !now.mark->norm) continue;
      const double roundoff =
          unit_roundoff(run.tables.str(now.mark->dtype)).value_or(kFloat32Roundoff);
      const double update = reach.of(after.n, *own->norm);
      due = due || (update > 0 && update > kFarAbove * roundoff * *now.mark->norm);
    }
    if (due && after.n == before.n + 1) out.due.push_back(after.n);
  }
  return out;
}

}  // namespace

std::optional<Unchanged> find_unchanged(const trace::Run& run, const ValueTable& table) {
  constexpr std::size_t kMin = 3;  // an optimizer may update every second step
  const Reach reach(run, table);
  std::optional<Unchanged> out;
  bool any_moved = false;
  for (const Series& series : table.series()) {
    if (series.phase != Phase::param || series.rows.size() < 2) continue;
    const ParameterChanges found = changes_of(run, table, reach, series);
    any_moved = any_moved || found.moved;
    if (found.moved || found.due.size() < kMin) continue;
    if (!out) out = Unchanged{{found.due.front(), {}, {}, found.due.size(), false}, true};
    out->fault.names.push_back(series.name);
    out->fault.n = std::min(out->fault.n, found.due.front());
    out->fault.steps = std::max(out->fault.steps, found.due.size());
  }
  if (!out) return std::nullopt;
  out->all = !any_moved;
  out->fault.ranks.resize(run.ranks.size());
  std::iota(out->fault.ranks.begin(), out->fault.ranks.end(), 0U);
  return out;
}

std::optional<NonFinite> find_non_finite(const ValueTable& table) {
  // What has norms at all: each parameter of a rank, and its gradients. A recorder may leave out
  // those of some tensors.
  std::set<std::tuple<Phase, std::uint32_t, std::uint32_t>> with_norms;
  const auto key = [](const ValueRow& row, const Reading& r) {
    return std::tuple(row.phase, row.phase == Phase::param ? row.name_index : 0, r.rank);
  };
  for (const ValueRow& row : table.rows()) {
    for (const Reading& r : row.readings) {
      if (r.mark->norm) with_norms.insert(key(row, r));
    }
  }
  const auto is_finite = [&](const ValueRow& row, const Reading& r) {
    return r.mark->norm || !r.mark->hash || !with_norms.contains(key(row, r));
  };
  std::optional<NonFinite> out;
  const ValueRow* first = nullptr;            // that is not finite
  for (const ValueRow& row : table.rows()) {  // by step and phase
    if (out && row.n > out->n) break;
    if (row.phase != Phase::local_grad && row.phase != Phase::synced_grad &&
        row.phase != Phase::param)
      continue;
    std::vector<std::uint32_t> ranks;
    for (const Reading& r : row.readings) {
      if (!is_finite(row, r)) ranks.push_back(r.rank);
    }
    if (ranks.empty()) continue;
    // An older step's gradients are not the reason if this step's were finite.
    if (first == nullptr || row.n > first->n) first = &row;
    if (row.phase != Phase::param) continue;
    if (!out) out = NonFinite{row.n, {}, first->phase, first->n, {}};
    out->names.push_back(row.name);
  }
  if (!out) return std::nullopt;
  std::set<std::uint32_t> ranks;
  for (const ValueRow& row : table.rows(out->first, out->first_n)) {
    for (const Reading& r : row.readings) {
      if (!is_finite(row, r)) ranks.insert(r.rank);
    }
  }
  out->first_ranks.assign(ranks.begin(), ranks.end());
  return out;
}

}  // namespace lockstep::verify
