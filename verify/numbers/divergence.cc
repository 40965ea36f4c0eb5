#include "verify/numbers/divergence.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "base/text.h"
#include "verify/context.h"
#include "verify/numbers/rounding.h"

namespace lockstep::verify {

namespace {

using Course = Divergence::Course;

// Whether ranks agree on a row; nothing where fewer than two say anything.
std::optional<bool> agree(const trace::Run& run, const ValueRow& row) {
  if (row.readings.size() < 2 || row.sharded()) return std::nullopt;
  const ValueClasses classes = classes_of(run, row);
  if (classes.classes.empty()) return std::nullopt;
  return !classes.differ();
}

struct Onset {
  Course course{};
  const ValueRow* row = nullptr;  // the first that differs
};

// What became of one value.
std::optional<Onset> onset_of(const trace::Run& run, const Series& series) {
  const ValueRow* first_differing = nullptr;
  const ValueRow* parted = nullptr;  // the first to differ after one that agreed
  std::size_t looks = 0;
  std::size_t reunions = 0;  // how often ranks that had agreed and parted agreed again
  bool agreed = false;
  bool agreed_before = false;
  for (const ValueRow* row : series.rows) {
    const std::optional<bool> same = agree(run, *row);
    if (!same) continue;
    ++looks;
    if (*same) {
      if (parted != nullptr && !agreed) ++reunions;
      agreed_before = true;
    } else {
      if (first_differing == nullptr) first_differing = row;
      if (agreed_before && parted == nullptr) parted = row;
    }
    agreed = *same;
  }
  if (first_differing == nullptr) return std::nullopt;
  if (reunions > 1) return Onset{Course::recurring, parted};
  if (parted != nullptr) return Onset{agreed ? Course::passing : Course::lasting, parted};
  if (agreed) return Onset{Course::initial, first_differing};
  if (looks == 1 && first_differing->n <= 0) return Onset{Course::one_look, first_differing};
  return Onset{Course::lasting, first_differing};
}

void count_at_the_end(const trace::Run& run, const ValueTable& table, Divergence& out) {
  for (const Series& series : table.series()) {
    if (series.phase == out.phase) out.last_n = std::max(out.last_n, series.rows.back()->n);
  }
  for (const ValueRow& row : table.rows(out.phase, out.last_n)) {
    if (const std::optional<bool> same = agree(run, row)) {
      ++out.last_compared;
      out.last_differ += *same ? 0U : 1U;
    }
  }
}

std::vector<std::uint32_t> culprits_of(const trace::Run& run,
                                       const std::vector<const ValueRow*>& rows) {
  std::vector<std::uint32_t> out;
  for (const ValueRow* row : rows) {
    const std::vector<std::uint32_t> minority = classes_of(run, *row).minority();
    if (minority.empty()) return {};
    out.insert(out.end(), minority.begin(), minority.end());
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

std::vector<Divergence> find_divergences(const trace::Run& run, const ValueTable& table,
                                         Phase phase) {
  std::array<std::vector<const ValueRow*>, 5> by_course;
  for (const Series& series : table.series()) {
    if (series.phase != phase) continue;
    if (const std::optional<Onset> onset = onset_of(run, series)) {
      by_course[static_cast<std::size_t>(onset->course)].push_back(onset->row);
    }
  }
  std::vector<Divergence> out;
  for (std::size_t c = 0; c < by_course.size(); ++c) {
    std::vector<const ValueRow*>& rows = by_course[c];
    if (rows.empty()) continue;
    Divergence d;
    d.course = static_cast<Course>(c);
    d.phase = phase;
    d.n = (*std::min_element(rows.begin(), rows.end(), [](const auto* a, const auto* b) {
            return a->n < b->n;
          }))->n;
    std::erase_if(rows, [&](const ValueRow* row) { return row->n != d.n; });
    std::sort(rows.begin(), rows.end(),
              [](const auto* a, const auto* b) { return a->place < b->place; });
    d.rows = std::move(rows);
    for (const ValueRow& row : table.rows(phase, d.n)) d.compared += agree(run, row) ? 1U : 0U;
    d.culprits = culprits_of(run, d.rows);
    count_at_the_end(run, table, d);
    out.push_back(std::move(d));
  }
  return out;
}

std::string sides_words(const trace::Run& run, const ValueRow& row) {
  constexpr std::size_t kSidesShown = 4;
  std::vector<std::string> sides;
  const ValueClasses classes = classes_of(run, row);
  for (const std::vector<std::uint32_t>& ranks : classes.classes) {
    std::vector<trace::Rank> named;
    for (const std::uint32_t r : ranks) named.push_back(run.ranks[r].rank);
    sides.push_back(rank_words(named));
  }
  if (!classes.minority().empty()) std::reverse(sides.begin(), sides.end());
  std::string out;
  for (std::size_t s = 0; s < std::min(sides.size(), kSidesShown); ++s) {
    out += (s == 0 ? "" : " against ") + sides[s];
  }
  if (sides.size() > kSidesShown) out += " and " + plural(sides.size() - kSidesShown, "more side");
  return out;
}

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
  const auto hashes = std::count_if(row.readings.begin(), row.readings.end(),
                                    [](const Reading& r) { return r.mark->hash.has_value(); });
  ValueClasses out{hashes > 1 ? by_hash(row) : by_norm(run, row)};
  std::sort(out.classes.begin(), out.classes.end(), [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() > b.size() : a.front() < b.front();
  });
  return out;
}

}  // namespace lockstep::verify
