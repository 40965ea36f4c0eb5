#include "verify/samples/sharding.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace lockstep::verify {

namespace {

using Ranks = std::vector<std::uint32_t>;
using Samples = SampleLog::Samples;

// The steps of a set of replicas, and what each rank consumed in them.
std::vector<std::int64_t> steps_of(const SampleLog& log, const Ranks& ranks) {
  std::set<std::int64_t> steps;
  for (const std::uint32_t r : ranks) {
    for (const auto& [n, samples] : log.by_step[r]) steps.insert(n);
  }
  return {steps.begin(), steps.end()};
}

const Samples* samples_in(const SampleLog& log, std::uint32_t rank, std::int64_t n) {
  const auto found = log.by_step[rank].find(n);
  return found == log.by_step[rank].end() ? nullptr : &found->second;
}

// All ranks consume the same in every step.
std::optional<SharedSamples> identical(const SampleLog& log, const Ranks& ranks) {
  const auto& first = log.by_step[ranks.front()];
  std::uint64_t each = 0;
  std::unordered_set<std::int64_t> distinct;
  for (const auto& [n, samples] : first) {
    each += samples.size();
    distinct.insert(samples.begin(), samples.end());
  }
  const bool same = std::all_of(ranks.begin(), ranks.end(),
                                [&](std::uint32_t r) { return log.by_step[r] == first; });
  if (!same || distinct.size() < 2) return std::nullopt;
  SharedSamples out;
  out.identical = true;
  out.ranks = ranks;
  out.n = first.begin()->first;
  out.consumed = each * ranks.size();
  out.distinct = each;
  return out;
}

// Some of the ranks, but not all, consume the same in every step: they believe to be one rank. Too
// few samples to fill a batch make padding look like that.
Ranks twins(const SampleLog& log, const Ranks& ranks) {
  std::map<std::map<std::int64_t, Samples>, Ranks> by_log;
  for (const std::uint32_t r : ranks) by_log[log.by_step[r]].push_back(r);
  Ranks out;
  for (const auto& [steps, same] : by_log) {
    if (same.size() < 2) continue;
    std::unordered_set<std::int64_t> distinct;
    for (const auto& [n, samples] : steps) distinct.insert(samples.begin(), samples.end());
    if (distinct.size() > ranks.size()) out.insert(out.end(), same.begin(), same.end());
  }
  std::sort(out.begin(), out.end());
  return out;
}

// One step of a set of replicas, seen from those before it.
struct StepCount {
  std::int64_t n = 0;
  std::uint64_t seen_before = 0;  // different samples
  std::uint64_t batch = 0;        // samples of all ranks
  std::uint64_t from_others = 0;  // samples that another rank consumed, before or in this step
  std::uint64_t from_own = 0;     // … that this rank consumed before
  std::uint64_t twice_now = 0;    // samples that two ranks consume in this very step
  bool own_twice_now = false;     // a rank consumes a sample twice in this step
};

struct Counts {
  std::vector<StepCount> steps;
  std::uint64_t distinct = 0;  // of the whole trace
  std::vector<std::map<std::uint32_t, std::uint64_t>>
      sharing;  // by step: samples that a rank shares
};

Counts count(const SampleLog& log, const Ranks& ranks) {
  struct Seen {
    std::uint32_t rank;
    std::int64_t n;
  };
  Counts out;
  std::unordered_map<std::int64_t, Seen> seen;  // who consumed a sample first
  for (const std::int64_t n : steps_of(log, ranks)) {
    StepCount step;
    step.n = n;
    step.seen_before = seen.size();
    std::map<std::uint32_t, std::uint64_t>& sharing = out.sharing.emplace_back();
    for (const std::uint32_t r : ranks) {
      const Samples* samples = samples_in(log, r, n);
      if (samples == nullptr) continue;
      step.batch += samples->size();
      for (const std::int64_t s : *samples) {
        const auto [known, fresh] = seen.try_emplace(s, Seen{r, n});
        if (fresh) continue;
        if (known->second.rank == r) {
          ++step.from_own;
          step.own_twice_now |= known->second.n == n;
          continue;
        }
        ++step.from_others;
        step.twice_now += known->second.n == n ? 1U : 0U;
        ++sharing[r];
        ++sharing[known->second.rank];
      }
    }
    out.steps.push_back(step);
  }
  out.distinct = seen.size();
  return out;
}

struct Sharing {
  std::size_t at = 0;   // the first step that shows it, into Counts::steps
  bool certain = true;  // false: sampling with replacement could come out like this
};

// Whether the replicas share samples that no sharded sampler lets them share; nothing where they do
// not, or where the trace does not show it.
std::optional<Sharing> find_sharing(const Counts& counts, std::uint64_t ranks) {
  const std::vector<StepCount>& steps = counts.steps;
  const auto repeats = [](const StepCount& s) { return s.from_others + s.from_own > 0; };
  const auto first = std::find_if(steps.begin(), steps.end(), repeats);
  const bool replaced =
      std::any_of(steps.begin(), steps.end(), [](const StepCount& s) { return s.own_twice_now; });
  if (first == steps.end() || replaced) return std::nullopt;
  const auto at = static_cast<std::size_t>(first - steps.begin());
  // A rank that samples with replacement draws its own samples as often as any other rank's:
  // chance(n) is the probability of n repeats that are all from others.
  const auto chance = [&](std::uint64_t n) {
    return std::pow(1 - 1.0 / static_cast<double>(ranks), static_cast<double>(n));
  };
  std::uint64_t others_before_own = 0;
  bool own_early = false;  // before half of the trace's samples have been seen, so in one epoch
  for (std::size_t i = at; i < steps.size(); ++i) {
    if (steps[i].from_own > 0) {
      own_early = steps[i].seen_before * 2 < counts.distinct;
      break;
    }
    others_before_own += steps[i].from_others;
  }
  const bool far_from_the_end = first->seen_before + first->batch + ranks < counts.distinct;
  if (far_from_the_end) {
    // Less likely than once in a thousand runs: no replacement. Else the finding is a warning.
    const bool certain = chance(others_before_own) < 1e-3;
    if (own_early && !certain) return std::nullopt;
    // A rank whose data is shorter starts again, and shares nothing.
    if (others_before_own == 0) return std::nullopt;
    return Sharing{at, certain};
  }
  // More than pads a last batch, and than may be of the next epoch: a step in which the samples run
  // out may go on with those.
  for (std::size_t i = at; i < steps.size(); ++i) {
    const std::uint64_t until_now = steps[i].seen_before + steps[i].batch;
    const std::uint64_t of_next = until_now > counts.distinct ? until_now - counts.distinct : 0;
    if (steps[i].twice_now >= ranks + of_next) return Sharing{i, true};
  }
  // Before all samples have been seen, and never one's own: a new epoch would deal some of them to
  // the same rank again.
  std::uint64_t own = 0;
  std::uint64_t others = 0;
  for (std::size_t i = at; i < steps.size(); ++i) {
    own += steps[i].from_own;
    others += steps[i].from_others;
  }
  // Near the end of the trace nothing else speaks for it, so chance must be ruled out: one in a
  // million.
  if (first->seen_before >= counts.distinct || own > 0 || chance(others) >= 1e-6) {
    return std::nullopt;
  }
  return Sharing{at, true};
}

}  // namespace

std::optional<SharedSamples> find_shared_samples(const SampleLog& log, const Ranks& ranks) {
  if (auto all = identical(log, ranks)) return all;
  const Counts counts = count(log, ranks);
  const Ranks same = twins(log, ranks);
  std::optional<Sharing> sharing_from = find_sharing(counts, ranks.size());
  if (!same.empty()) sharing_from = Sharing{};
  if (!sharing_from) return std::nullopt;
  const std::size_t at = sharing_from->at;
  SharedSamples out;
  out.certain = sharing_from->certain;
  out.n = counts.steps[at].n;
  std::map<std::uint32_t, std::uint64_t> sharing;
  for (std::size_t i = 0; i < counts.steps.size(); ++i) {
    const StepCount& step = counts.steps[i];
    // At most one epoch: a rank that reads its own samples again is in the next.
    if (i > at && (step.from_own > 0 || step.seen_before >= counts.distinct)) break;
    out.consumed += step.batch;
    out.distinct = step.seen_before + step.batch - step.from_others - step.from_own;
    for (const auto& [rank, samples] : counts.sharing[i]) sharing[rank] += samples;
  }
  if (!same.empty()) {
    out.ranks = same;
    return out;
  }
  // Others share a few samples with them by now, in the first steps of a new epoch perhaps.
  std::uint64_t most = 0;
  for (const auto& [rank, samples] : sharing) most = std::max(most, samples);
  for (const auto& [rank, samples] : sharing) {
    if (samples * 4 >= most) out.ranks.push_back(rank);
  }
  return out;
}

namespace {

// The steps in which one rank reads samples that it has read before.
struct OwnRepeats {
  std::map<std::int64_t, std::int64_t>
      whole;                   // by step: the one in which the same batch came first
  std::set<std::int64_t> any;  // steps with a sample that is not new
};

OwnRepeats own_repeats(const std::map<std::int64_t, Samples>& by_step) {
  OwnRepeats out;
  std::map<Samples, std::int64_t> batches;
  std::unordered_set<std::int64_t> seen;
  for (const auto& [n, samples] : by_step) {
    Samples sorted = samples;
    std::sort(sorted.begin(), sorted.end());
    const auto [known, fresh] = batches.try_emplace(std::move(sorted), n);
    if (!fresh) out.whole[n] = known->second;
    for (const std::int64_t s : samples) {
      if (!seen.insert(s).second) out.any.insert(n);
    }
  }
  return out;
}

}  // namespace

std::optional<RepeatedBatch> find_repeated_batch(const SampleLog& log, const Ranks& ranks) {
  std::map<std::uint32_t, OwnRepeats> repeats;
  std::size_t distinct = 0;
  for (const std::uint32_t r : ranks) {
    repeats[r] = own_repeats(log.by_step[r]);
    const Samples all = log.all(r);
    distinct += std::unordered_set<std::int64_t>(all.begin(), all.end()).size();
  }
  std::optional<RepeatedBatch> out;
  for (const std::uint32_t r : ranks) {
    const auto& own = log.by_step[r];
    for (const auto& [n_of_repeat, first] : repeats[r].whole) {
      const auto n = n_of_repeat;  // clang 14 takes no structured binding into a lambda
      if (out && out->n <= n) break;
      // The first repeat of any rank: later ones may be those of a new epoch.
      const bool alone = std::all_of(ranks.begin(), ranks.end(), [&](std::uint32_t other) {
        const std::set<std::int64_t>& any = repeats[other].any;
        return any.empty() || *any.begin() > n || (other == r && *any.begin() == n);
      });
      const auto next = own.upper_bound(n);
      const bool goes_on =
          next != own.end() ? !repeats[r].any.contains(next->first) : own.begin()->first != first;
      const Samples& batch = own.at(n);
      const auto size = static_cast<double>(batch.size());
      const double log_chance =
          std::log(static_cast<double>(own.size())) + std::lgamma(size + 1) -
          size * std::log(static_cast<double>(std::max<std::size_t>(distinct, 1)));
      if (!alone || !goes_on || log_chance > std::log(1e-3)) continue;
      out = RepeatedBatch{r, n, first, batch.size()};
    }
  }
  return out;
}

Ranks find_doubled(const SampleLog& log, const Ranks& ranks) {
  Ranks out;
  for (const std::uint32_t r : ranks) {
    const auto& own = log.by_step[r];
    std::set<Samples> again;
    std::size_t doubled = 0;
    const Samples* before = nullptr;
    for (const auto& [n, samples] : own) {
      if (before != nullptr && samples.size() > 1 && samples == *before) {
        again.insert(samples);
        ++doubled;
      }
      before = &samples;
    }
    if (again.size() > 1 && 2 * doubled >= own.size() - own.size() % 2) out.push_back(r);
  }
  return out;
}

EpochOrder find_epoch_order(const Samples& samples) {
  EpochOrder out;
  if (samples.size() < 2) return out;
  const auto second = std::find(samples.begin() + 1, samples.end(), samples.front());
  if (second == samples.end()) return out;
  out.again = true;
  const auto period = static_cast<std::size_t>(std::distance(samples.begin(), second));
  RepeatedOrder repeated{period, samples.size() - period, false, 0};
  for (std::size_t i = 0; i + period < samples.size(); ++i) {
    if (samples[i] != samples[i + period]) return out;
    // A shuffled epoch has the same sample at index m, after m that were the same, once in
    // period - m times (more rarely still where the shards are dealt again).
    repeated.log_chance -= std::log(static_cast<double>(period - i % period));
  }
  repeated.ascending =
      std::is_sorted(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(period));
  out.repeated = repeated;
  return out;
}

namespace {

// A rank's data lines by step, in order.
std::map<std::int64_t, std::vector<const trace::DataMark*>> lines_of(
    const trace::RankTrace& trace) {
  std::map<std::int64_t, std::vector<const trace::DataMark*>> out;
  for (const trace::DataMark& mark : trace.data) out[mark.n].push_back(&mark);
  return out;
}

// A line, and the line of the same step that should name the same samples; nullptr: there is none.
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
