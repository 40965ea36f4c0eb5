#include "verify/numbers/replicas.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace lockstep::verify {

namespace {

using Kind = trace::StateMark::Kind;
using When = trace::StateMark::When;

bool exchange_parts(const trace::Run& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(), [&](const trace::RankTrace& trace) {
    return std::any_of(trace.calls.begin(), trace.calls.end(), [&](const trace::Call& call) {
      const trace::Op op = run.tables.op(call);
      return trace::is_point_to_point(op) || op == trace::Op::all_to_all ||
             op == trace::Op::all_to_all_single;
    });
  });
}

// The names of a rank's parameters; nothing where a value is declared to be the same on ranks.
std::optional<std::set<std::uint32_t>> parameters_of(const trace::RankTrace& trace) {
  std::set<std::uint32_t> out;
  for (const trace::StateMark& mark : trace.states) {
    if (!mark.sharded) return std::nullopt;
    if (mark.kind == Kind::param) out.insert(mark.name.value);
  }
  return out;
}

struct GotGradient {
  std::uint64_t hash = 0;
  double norm = 0;
};
using GotGradients = std::map<std::uint32_t, GotGradient>;  // by name

// What the optimizer got on a rank in step n: gradients that are not zero. The last of several
// records counts; a program that clips before it reduces leaves two.
GotGradients last_gradients(const trace::RankTrace& trace, std::int64_t n) {
  GotGradients out;
  for (const trace::StateMark& mark : trace.states) {
    if (mark.kind != Kind::grad || mark.when != When::synced || mark.n != n) continue;
    if (mark.hash && mark.norm && *mark.norm != 0) {
      out[mark.name.value] = {*mark.hash, *mark.norm};
    } else {
      out.erase(mark.name.value);
    }
  }
  return out;
}

// Whether every rank's gradients are those of the first rank times one number, the same for all
// names: all got one sum, and a rank divided it by another number. Gradients of different batches,
// or of different parts, have different proportions in every tensor.
bool differ_by_a_factor(const std::vector<GotGradients>& of_ranks) {
  constexpr std::size_t kMin = 4;     // two or three tensors may be proportional by chance
  constexpr double kRounding = 1e-5;  // of a division in float32, and of the norm
  const GotGradients& reference = of_ranks.front();
  if (reference.size() < kMin) return false;
  return std::all_of(of_ranks.begin() + 1, of_ranks.end(), [&](const GotGradients& here) {
    if (here.size() != reference.size()) return false;
    const auto& [first_name, first] = *reference.begin();
    const auto same = here.find(first_name);
    if (same == here.end()) return false;
    const double factor = same->second.norm / first.norm;
    return std::all_of(reference.begin(), reference.end(), [&](const auto& named) {
      const auto found = here.find(named.first);
      return found != here.end() &&
             std::abs(found->second.norm / named.second.norm / factor - 1) <= kRounding;
    });
  });
}

}  // namespace

bool are_undeclared_replicas(const trace::Run& run) {
  constexpr std::size_t kMin = 2;  // one equal gradient may be chance: a bias of one class
  if (run.ranks.size() < 2 || run.ranks.size() != static_cast<std::size_t>(run.world_size))
    return false;
  const auto parameters = parameters_of(run.ranks.front());
  if (!parameters || parameters->empty()) return false;
  std::optional<std::int64_t> first;
  for (const trace::StateMark& mark : run.ranks.front().states) {
    if (mark.kind == Kind::grad && mark.when == When::synced)
      first = std::min(first.value_or(mark.n), mark.n);
  }
  if (!first || exchange_parts(run)) return false;
  std::vector<GotGradients> of_ranks;
  std::set<std::uint32_t> names;
  std::vector<std::set<std::uint64_t>> hashes;  // of each rank
  for (const trace::RankTrace& trace : run.ranks) {
    if (parameters_of(trace) != parameters) return false;
    of_ranks.push_back(last_gradients(trace, *first));
    hashes.emplace_back();
    for (const auto& [name, gradient] : of_ranks.back()) {
      names.insert(name);
      hashes.back().insert(gradient.hash);
    }
  }
  if (differ_by_a_factor(of_ranks)) return true;
  const GotGradients& reference = of_ranks.front();
  const auto equal =
      static_cast<std::size_t>(std::count_if(names.begin(), names.end(), [&](std::uint32_t name) {
        const auto known = reference.find(name);
        if (known == reference.end()) return false;
        for (std::size_t r = 1; r < of_ranks.size(); ++r) {
          const auto here = of_ranks[r].find(name);
          if (here == of_ranks[r].end() || !hashes[r].contains(known->second.hash) ||
              !hashes.front().contains(here->second.hash))
            return false;
        }
        return true;
      }));
  return equal >= kMin && equal * 4 >= names.size() * 3;
}

}  // namespace lockstep::verify
