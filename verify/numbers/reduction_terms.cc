#include "verify/numbers/reduction_terms.h"

#include <cmath>
#include <optional>

namespace lockstep {

namespace {

std::vector<std::uint32_t> union_of(const ValueRow& a, const ValueRow& b) {
  std::vector<std::uint32_t> out;
  for (const Reading& r : a.readings) out.push_back(r.rank);
  for (const Reading& r : b.readings) out.push_back(r.rank);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// Leaves the total empty where some part of either side has no sketch, or another kind of one.
void add_sketches(const ValueRow& synced, Reduction& out) {
  const std::size_t k = synced.readings.front().mark->sketch.size();
  if (k == 0) return;
  Sketch total(k, 0.0);
  for (const Term& term : out.terms) {
    if (term.local == nullptr) continue;
    if (term.local->sketch.size() != k) return;
    total = sum(std::move(total), term.local->sketch);
  }
  for (const Reading& r : synced.readings) {
    if (r.mark->sketch.size() != k) return;
  }
  out.total = std::move(total);
}

}  // namespace

bool Reduction::fits(const Sketch& got, const Sketch& expected_total, double divisor) const {
  const double most = rounding_bound(world(), roundoff, norms) / divisor;
  for (std::size_t j = 0; j < got.size(); ++j) {
    if (std::abs(got[j] - expected_total[j] / divisor) > most) return false;
  }
  return true;
}

Assembler::Assembler(const Context& context, const ValueTable& table, const SyncCalls& calls)
    : context_(context), table_(table), calls_(calls) {
  for (const ValueRow& row : table.rows()) {
    if (row.phase != Phase::local_grad) continue;
    for (const Reading& r : row.readings) recorded_.insert({r.rank, row.n});
  }
}

Assembler::Gap Assembler::assemble(const ValueRow& synced, Reduction& out) const {
  const ValueRow* local = table_.row(Phase::local_grad, synced.name, synced.n);
  if (local == nullptr || local->sharded()) return Gap::not_recorded;
  out.row = &synced;
  const SyncCall* call = calls_.of(synced.name);
  const std::vector<std::uint32_t> ranks = call != nullptr ? call->ranks : union_of(synced, *local);
  const bool whole = call != nullptr ? call->whole
                                     : context_.run.ranks.size() ==
                                           static_cast<std::size_t>(context_.run.world_size);
  if (!whole) return Gap::rank_missing;
  for (const std::uint32_t r : ranks) {
    const StateMark* mark = local->of(r);
    if (mark == nullptr && !recorded_.contains({r, synced.n})) return Gap::not_recorded;
    out.terms.push_back({r, mark});
    out.contributors += out.terms.back().contributes() ? 1U : 0U;
    out.norms += out.terms.back().size();
  }
  out.average = call != nullptr ? call->average : calls_.declared();
  out.roundoff = roundoff_of(*local, call);
  add_sketches(synced, out);
  return Gap::none;
}

double Assembler::roundoff_of(const ValueRow& local, const SyncCall* call) const {
  std::optional<double> worst;
  if (call != nullptr) worst = call->roundoff;
  for (const Reading& r : local.readings) {
    const auto own = unit_roundoff(context_.run.tables.str(r.mark->dtype));
    if (own) worst = std::max(*own, worst.value_or(0));
  }
  return worst.value_or(kFloat32Roundoff);
}

}  // namespace lockstep
