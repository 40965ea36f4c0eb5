#include "verify/numbers/replicas.h"

#include <algorithm>
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

// What the optimizer got on a rank in step n, by name: hashes of gradients that are not zero. Of
// several records the last one counts; a program that clips before it reduces leaves two.
std::map<std::uint32_t, std::uint64_t> last_gradients(const trace::RankTrace& trace,
                                                      std::int64_t n) {
  std::map<std::uint32_t, std::uint64_t> out;
  for (const trace::StateMark& mark : trace.states) {
    if (mark.kind != Kind::grad || mark.when != When::synced || mark.n != n) continue;
    if (mark.hash && mark.norm && *mark.norm != 0) {
      out[mark.name.value] = *mark.hash;
    } else {
      out.erase(mark.name.value);
    }
  }
  return out;
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
  struct Gradient {
    std::uint64_t hash = 0;
    std::size_t equal = 0;  // ranks that have this hash
  };
  std::map<std::uint32_t, Gradient> gradients;  // by name
  for (const trace::RankTrace& trace : run.ranks) {
    if (parameters_of(trace) != parameters) return false;
    for (const auto& [name, hash] : last_gradients(trace, *first)) {
      const auto [known, fresh] = gradients.try_emplace(name, Gradient{hash, 0});
      known->second.equal += known->second.hash == hash ? 1U : 0U;
    }
  }
  const auto equal = static_cast<std::size_t>(
      std::count_if(gradients.begin(), gradients.end(),
                    [&](const auto& named) { return named.second.equal == run.ranks.size(); }));
  return equal >= kMin && equal * 4 >= gradients.size() * 3;
}

}  // namespace lockstep::verify
