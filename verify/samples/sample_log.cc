#include "verify/samples/sample_log.h"

#include <algorithm>
#include <iterator>

namespace lockstep::verify {

namespace {

// A rank's data lines by step, in order.
std::map<std::int64_t, std::vector<const trace::DataMark*>> lines_of(
    const trace::RankTrace& trace) {
  std::map<std::int64_t, std::vector<const trace::DataMark*>> out;
  for (const trace::DataMark& mark : trace.data) out[mark.n].push_back(&mark);
  return out;
}

// The lines of one step, each with the one that ought to say the same; nullptr: there is none.
struct Line {
  const trace::DataMark* own = nullptr;
  const trace::DataMark* other = nullptr;
};

std::vector<Line> paired(const std::vector<const trace::DataMark*>& lines) {
  std::vector<Line> out;
  const bool named = std::all_of(lines.begin(), lines.end(),
                                 [](const trace::DataMark* m) { return m->modality.value != 0; });
  if (named) {  // the k-th line of one modality and the k-th of the other
    std::vector<const trace::DataMark*> others;
    for (const trace::DataMark* mark : lines) {
      if (mark->modality == lines.front()->modality) {
        out.push_back({mark, nullptr});
      } else {
        others.push_back(mark);
      }
    }
    for (std::size_t k = 0; k < std::min(out.size(), others.size()); ++k) out[k].other = others[k];
    return out;
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool pair =
        i + 1 < lines.size() && common_share(lines[i]->indices, lines[i + 1]->indices) > 0.5;
    out.push_back({lines[i], pair ? lines[i + 1] : nullptr});
    i += pair ? 1U : 0U;
  }
  return out;
}

}  // namespace

SampleLog::Samples SampleLog::all(std::uint32_t rank) const {
  Samples out;
  for (const auto& [n, samples] : by_step[rank]) {
    out.insert(out.end(), samples.begin(), samples.end());
  }
  return out;
}

SampleLog read_samples(const trace::Run& run) {
  SampleLog out;
  for (const trace::RankTrace& trace : run.ranks) {
    auto& steps = out.by_step.emplace_back();
    for (const auto& [n, lines] : lines_of(trace)) {
      SampleLog::Samples& samples = steps[n];
      for (const Line& line : paired(lines)) {
        samples.insert(samples.end(), line.own->indices.begin(), line.own->indices.end());
      }
    }
  }
  return out;
}

std::vector<SamplePair> find_sample_pairs(const trace::Run& run) {
  std::vector<SamplePair> out;
  for (std::uint32_t r = 0; r < run.ranks.size(); ++r) {
    for (const auto& [n, lines] : lines_of(run.ranks[r])) {
      for (const Line& line : paired(lines)) {
        if (line.other == nullptr) continue;
        out.push_back({r, n, &line.own->indices, &line.other->indices});
      }
    }
  }
  return out;
}

double common_share(const SampleLog::Samples& a, const SampleLog::Samples& b) {
  if (a.size() != b.size() || a.empty()) return 0;
  SampleLog::Samples x = a;
  SampleLog::Samples y = b;
  std::sort(x.begin(), x.end());
  std::sort(y.begin(), y.end());
  SampleLog::Samples common;
  std::set_intersection(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(common));
  return static_cast<double>(common.size()) / static_cast<double>(a.size());
}

}  // namespace lockstep::verify
