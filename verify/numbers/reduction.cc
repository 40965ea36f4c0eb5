#include "verify/numbers/reduction.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace lockstep::verify {

namespace {

using FaultKind = ReductionFault::Kind;
// Wrong rows for which all other tensors are searched for a swapped one. A program that swaps
// tensors does it in every step, so the first rows show it.
constexpr std::size_t kRowsSearched = 64;

// The correct divisors of a reduction. If the program declares none, both usual ones are correct:
// the world size, and the number of ranks that had a gradient.
std::vector<double> right_divisors(const Reduction& r) {
  const auto world = static_cast<double>(r.world());
  const double contributors = std::max(1.0, static_cast<double>(r.contributors));
  switch (r.average) {
    case Average::sum:
      return {1};
    case Average::world:
      return {world};
    case Average::contributors:
      return {contributors};
    case Average::undeclared:
      break;
  }
  return {world, contributors};
}

// Finds out what is wrong with the result of a reduction.
class Diagnosis {
 public:
  Diagnosis(const Context& context, const ValueTable& table, const Reduction& reduction,
            bool search_partners)
      : context_(context), table_(table), r_(reduction), search_partners_(search_partners) {}

  // What is wrong with `got`, the sketch of a result; nothing where it is correct. The simplest
  // explanations come first: more freedom (one rank, one other tensor) fits more by chance.
  std::optional<ReductionFault> of(const Sketch& got) const {
    if (fits_any(got, r_.total)) return dilution(got);
    if (auto f = wrong_divisor(got)) return f;
    if (auto f = other_total(FaultKind::left_out, got, -1)) return f;
    if (auto f = other_total(FaultKind::counted_twice, got, 1)) return f;
    if (search_partners_) {
      if (auto f = partner(got)) return f;
    }
    return fault(FaultKind::corrupt);
  }

  ReductionFault fault(FaultKind kind) const {
    ReductionFault out;
    out.kind = kind;
    out.row = r_.row;
    out.world = r_.world();
    out.contributors = r_.contributors;
    return out;
  }

 private:
  bool fits_any(const Sketch& got, const Sketch& total) const {
    const std::vector<double> right = right_divisors(r_);
    return std::any_of(right.begin(), right.end(),
                       [&](double divisor) { return r_.fits(got, total, divisor); });
  }

  // A correct mean over all ranks is still diluted if some ranks had no gradient because their
  // batches lacked a modality. Their missing gradients then count as zeros:
  //
  //   gradients 4, 6, none, none: mean over the world 2.5, mean over the contributors 5
  //
  // Not where the program declares how it averages.
  std::optional<ReductionFault> dilution(const Sketch& got) const {
    if (r_.average != Average::undeclared || r_.contributors == r_.world() ||
        r_.contributors == 0 || norm_estimate(got) == 0 ||
        r_.fits(got, r_.total, static_cast<double>(r_.contributors)) || !modalities_differ()) {
      return std::nullopt;
    }
    return fault(FaultKind::diluted);
  }

  // Whether each rank without a gradient lacked a modality that a contributor's batch held.
  bool modalities_differ() const {
    const auto step = static_cast<std::int32_t>(r_.row->n);
    const auto with = std::find_if(r_.terms.begin(), r_.terms.end(),
                                   [](const Term& t) { return t.contributes(); });
    return std::all_of(r_.terms.begin(), r_.terms.end(), [&](const Term& t) {
      return t.contributes() || !context_.modalities.lacking(t.rank, with->rank, {step}).empty();
    });
  }

  // Whether the result is the total divided by some other number, found by least squares: the
  // factor that minimises |got - total / divisor|.
  std::optional<ReductionFault> wrong_divisor(const Sketch& got) const {
    const double along = dot(got, r_.total);
    const double whole = dot(r_.total, r_.total);
    if (whole == 0 || along <= 0) return std::nullopt;
    const double estimate = whole / along;
    if (!r_.fits(got, r_.total, estimate)) return std::nullopt;
    const double divisor = meant_divisor(got, estimate);
    const bool by_world = r_.fits(got, r_.total, static_cast<double>(r_.world()));
    ReductionFault out = fault(
        by_world && r_.average == Average::contributors ? FaultKind::diluted : FaultKind::divisor);
    out.declared = out.kind == FaultKind::diluted;
    out.divisor = divisor;
    return out;
  }

  // The divisor that was meant: of those that rounding leaves open, 1, the square of the world size
  // or the nearest whole number. In 16 bits a sum comes out as divided by 0.998 or 1.002.
  double meant_divisor(const Sketch& got, double estimate) const {
    const auto world = static_cast<double>(r_.world());
    for (const double meant : {1.0, world * world, std::round(estimate)}) {
      if (meant >= 1 && r_.fits(got, r_.total, meant)) return meant;
    }
    return estimate;
  }

  // A rank whose gradient is missing from the sum (factor -1) or in it twice (factor 1): the only
  // rank for which the result then fits.
  std::optional<ReductionFault> other_total(FaultKind kind, const Sketch& got,
                                            double factor) const {
    std::optional<ReductionFault> found;
    for (const Term& term : r_.terms) {
      if (!term.contributes()) continue;
      // Divided by the correct number, or by the number of terms that were really summed.
      const Sketch total = sum(r_.total, term.local->sketch, factor);
      const double others = static_cast<double>(r_.world()) + factor;
      std::optional<double> divisor;
      for (const double d : right_divisors(r_)) {
        if (!divisor && r_.fits(got, total, d)) divisor = d;
      }
      if (!divisor && others > 0 && r_.fits(got, total, others)) divisor = others;
      if (!divisor) continue;
      if (found) return std::nullopt;  // two ranks explain it: their gradients are alike
      found = fault(kind);
      found->culprits = {term.rank};
      found->divisor = *divisor;
    }
    return found;
  }

  // Whether one rank contributed another tensor of the same size. Then other ranks' results for
  // this name contain its other tensor ("alone"), and its own result contains everybody else's
  // ("rest"):
  //
  //   rank 0  all_reduce(a)  all_reduce(b)     a = a0 + a1 + b2, b = b0 + b1 + a2
  //   rank 1  all_reduce(a)  all_reduce(b)     the same
  //   rank 2  all_reduce(b)  all_reduce(a)     its b is what the others call a
  std::optional<ReductionFault> partner(const Sketch& got) const {
    const std::int64_t size = elements_of(context_.run, *r_.row->readings.front().mark);
    for (const ValueRow& other : table_.rows(Phase::local_grad, r_.row->n)) {
      if (other.name == r_.row->name ||
          elements_of(context_.run, *other.readings.front().mark) != size) {
        continue;
      }
      Sketch all_other(got.size(), 0.0);
      bool whole = true;
      for (const Term& term : r_.terms) {
        const trace::StateMark* mark = other.of(term.rank);
        whole = whole && mark != nullptr && mark->sketch.size() == got.size();
        if (whole) all_other = sum(std::move(all_other), mark->sketch);
      }
      for (const Term& term : r_.terms) {
        const trace::StateMark* mark = other.of(term.rank);
        if (mark == nullptr || mark->sketch.size() != got.size()) continue;
        const Sketch own = term.local == nullptr ? Sketch(got.size(), 0.0) : term.local->sketch;
        const Sketch alone = sum(sum(r_.total, own, -1), mark->sketch);
        const bool fits_alone = fits_any(got, alone);
        const bool fits_rest = whole && fits_any(got, sum(sum(all_other, mark->sketch, -1), own));
        if (!fits_alone && !fits_rest) continue;
        ReductionFault out = fault(FaultKind::mispaired);
        // With two ranks, either may have swapped its tensors: both explain the sum.
        if (r_.world() > 2) out.culprits = {term.rank};
        out.partner = other.name;
        return out;
      }
    }
    return std::nullopt;
  }

  const Context& context_;
  const ValueTable& table_;
  const Reduction& r_;
  bool search_partners_;
};

// Ranks that still hold their own gradient after the synchronisation, although others' differ.
std::vector<std::uint32_t> unsynchronised(const Reduction& r) {
  std::vector<std::uint32_t> out;
  if (r.contributors < 2 || r.row->sharded()) return out;
  for (const Term& term : r.terms) {
    const trace::StateMark* synced = r.row->of(term.rank);
    // A gradient with infinities or NaN has no norm, and keeps its hash whatever is added to it.
    const bool infinite = synced != nullptr && !synced->norm && r.norms > 0;
    if (synced == nullptr || infinite || !term.contributes() || !synced->hash ||
        synced->hash != term.local->hash) {
      continue;
    }
    const bool others_differ = std::any_of(r.terms.begin(), r.terms.end(), [&](const Term& other) {
      return other.contributes() && other.local->hash && other.local->hash != term.local->hash;
    });
    if (others_differ) out.push_back(term.rank);
  }
  return out;
}

// Judges by norms alone: the norm of a mean is at most the mean of the norms.
std::optional<FaultKind> by_norms(const Reduction& r) {
  const bool all_norms = std::all_of(r.terms.begin(), r.terms.end(), [](const Term& t) {
    return t.local == nullptr || t.local->norm.has_value();
  });
  if (!all_norms || r.row->sharded()) return std::nullopt;
  const std::vector<double> right = right_divisors(r);
  const double divisor = *std::min_element(right.begin(), right.end());
  for (const Reading& reading : r.row->readings) {
    if (!reading.mark->norm) continue;
    // Twice: the norm of the result and the norms of the terms are both rounded.
    const double tolerance = 2 * norm_tolerance(0) + static_cast<double>(r.world()) * r.roundoff;
    if (*reading.mark->norm > r.norms / divisor * (1 + tolerance)) return FaultKind::too_large;
  }
  return std::nullopt;
}

// The distinct results, with the ranks that hold them. Shards of one tensor add up to one result.
std::vector<std::pair<std::vector<std::uint32_t>, Sketch>> results_of(const Reduction& r) {
  std::vector<std::pair<std::vector<std::uint32_t>, Sketch>> out;
  for (const Reading& reading : r.row->readings) {
    const Sketch& sketch = reading.mark->sketch;
    if (r.row->sharded() && !out.empty()) {
      out.front().second = sum(std::move(out.front().second), sketch);
      continue;
    }
    const auto same = std::find_if(out.begin(), out.end(),
                                   [&](const auto& known) { return known.second == sketch; });
    if (same != out.end()) {
      same->first.push_back(reading.rank);
    } else {
      out.push_back({{reading.rank}, sketch});
    }
  }
  return out;
}

// Adds at most one fault for a reduction. Hashes first, since they are exact; then sketches; norms
// where there are none.
void check(const Context& context, const ValueTable& table, const Reduction& r, bool search,
           std::vector<ReductionFault>& faults) {
  const Diagnosis diagnosis(context, table, r, search);
  if (std::vector<std::uint32_t> ranks = unsynchronised(r); !ranks.empty()) {
    ReductionFault out = diagnosis.fault(FaultKind::unsynchronised);
    if (ranks.size() < r.world()) out.culprits = std::move(ranks);
    faults.push_back(std::move(out));
    return;
  }
  if (r.total.empty()) {
    if (const std::optional<FaultKind> kind = by_norms(r)) faults.push_back(diagnosis.fault(*kind));
    return;
  }
  const auto results = results_of(r);
  for (const auto& [ranks, sketch] : results) {
    std::optional<ReductionFault> found = diagnosis.of(sketch);
    if (!found) continue;
    // The results differ between ranks, and no rule explains this one: its ranks are the culprits.
    if (results.size() > 1 && found->kind == FaultKind::corrupt) found->culprits = ranks;
    faults.push_back(std::move(*found));
    return;
  }
}

}  // namespace

Reductions check_reductions(const Context& context, const ValueTable& table,
                            const SyncCalls& calls) {
  Reductions out;
  const Assembler assembler(context, table, calls);
  for (const ValueRow& row : table.rows()) {
    if (row.phase != Phase::synced_grad) continue;
    Reduction reduction;
    const Assembler::Gap gap = assembler.assemble(row, reduction);
    out.unchecked += gap == Assembler::Gap::rank_missing ? 1U : 0U;
    if (gap != Assembler::Gap::none || reduction.world() < 2) continue;
    ++out.checked;
    check(context, table, reduction, out.faults.size() < kRowsSearched, out.faults);
  }
  return out;
}

namespace {

// The ranks that recorded either of two values.
std::vector<std::uint32_t> union_of(const ValueRow& a, const ValueRow& b) {
  std::vector<std::uint32_t> out;
  for (const Reading& r : a.readings) out.push_back(r.rank);
  for (const Reading& r : b.readings) out.push_back(r.rank);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// Sums the terms' sketches. The total stays empty where any value has no sketch or one of another
// length.
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
    const trace::StateMark* mark = local->of(r);
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

// The coarsest precision of the tensors and of the type that was sent.
double Assembler::roundoff_of(const ValueRow& local, const SyncCall* call) const {
  std::optional<double> worst;
  if (call != nullptr) worst = call->roundoff;
  for (const Reading& r : local.readings) {
    const auto own = unit_roundoff(context_.run.tables.str(r.mark->dtype));
    if (own) worst = std::max(*own, worst.value_or(0));
  }
  return worst.value_or(kFloat32Roundoff);
}

}  // namespace lockstep::verify
