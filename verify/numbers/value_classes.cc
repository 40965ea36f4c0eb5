#include "verify/numbers/value_classes.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/context.h"
#include "verify/numbers/rounding.h"

namespace lockstep::verify {

namespace {

using Classes = std::vector<std::vector<std::uint32_t>>;

Classes by_hash(const ValueRow& row) {
  std::map<std::uint64_t, std::vector<std::uint32_t>> by_value;
  for (const Reading& r : row.readings) {
    if (r.mark->hash) by_value[*r.mark->hash].push_back(r.rank);
  }
  Classes out;
  for (auto& [hash, ranks] : by_value) out.push_back(std::move(ranks));
  return out;
}

// Sorted norms, cut where two neighbours are further apart than rounding explains.
Classes by_norm(const trace::Run& run, const ValueRow& row) {
  std::vector<std::pair<double, std::uint32_t>> norms;
  std::int64_t elements = 0;
  for (const Reading& r : row.readings) {
    if (!r.mark->norm) continue;
    norms.emplace_back(*r.mark->norm, r.rank);
    elements = std::max(elements, elements_of(run, *r.mark));
  }
  std::sort(norms.begin(), norms.end());
  const double tolerance = norm_tolerance(elements);
  Classes out;
  double last = 0;
  for (const auto& [norm, rank] : norms) {
    if (out.empty() || std::abs(norm - last) > tolerance * std::abs(norm)) out.emplace_back();
    out.back().push_back(rank);
    last = norm;
  }
  for (auto& ranks : out) std::sort(ranks.begin(), ranks.end());
  return out;
}

}  // namespace

std::vector<std::uint32_t> ValueClasses::minority() const {
  std::vector<std::uint32_t> others;
  for (std::size_t c = 1; c < classes.size(); ++c) {
    others.insert(others.end(), classes[c].begin(), classes[c].end());
  }
  if (classes.empty() || classes.front().size() <= others.size()) return {};
  std::sort(others.begin(), others.end());
  return others;
}

ValueClasses classes_of(const trace::Run& run, const ValueRow& row) {
  // Hashes are exact, but one alone compares with nothing: then the norms decide.
  const auto hashes = std::count_if(row.readings.begin(), row.readings.end(),
                                    [](const Reading& r) { return r.mark->hash.has_value(); });
  ValueClasses out{hashes > 1 ? by_hash(row) : by_norm(run, row)};
  std::sort(out.classes.begin(), out.classes.end(), [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() > b.size() : a.front() < b.front();
  });
  return out;
}

std::string describe_sides(const trace::Run& run, const ValueRow& row) {
  constexpr std::size_t kSidesShown = 4;
  std::vector<std::string> sides;
  const ValueClasses classes = classes_of(run, row);
  for (const std::vector<std::uint32_t>& ranks : classes.classes) {
    std::vector<trace::Rank> named;
    named.reserve(ranks.size());
    for (const std::uint32_t r : ranks) named.push_back(run.ranks[r].rank);
    sides.push_back(describe_ranks(named));
  }
  // The minority first, since it is what the reader looks for: "rank 3 against ranks 0-2".
  if (!classes.minority().empty()) std::reverse(sides.begin(), sides.end());
  std::string out;
  for (std::size_t s = 0; s < std::min(sides.size(), kSidesShown); ++s) {
    out += (s == 0 ? "" : " against ") + sides[s];
  }
  if (sides.size() > kSidesShown)
    out += fmt::format(" and {}", plural(sides.size() - kSidesShown, "more side"));
  return out;
}

}  // namespace lockstep::verify
