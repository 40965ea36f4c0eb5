#include "verify/samples/check_samples.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/quantities.h"
#include "base/text.h"
#include "verify/context.h"
#include "verify/samples/replicas.h"
#include "verify/samples/sharding.h"

namespace lockstep::verify {

namespace {

using Ranks = std::vector<std::uint32_t>;

Cause sample_cause(const Context& context, RuleId rule, std::int64_t n, const Ranks& ranks) {
  Cause out = value_cause(context, rule, n, {}, {});
  out.finding.certainty = Certainty::observed;
  out.finding.ranks = context.ranks(ranks);
  return out;
}

// Whether a call carries a batch: its tag or the names of what it carries say so, or it carries
// whole numbers without a name, as token ids are.
bool carries_batch(const trace::Tables& tables, const trace::Call& call) {
  if (contains_text(tables.str(call.tag), "batch")) return true;
  for (const std::string& name : tables.names(call.what))
    if (name.starts_with("batch") || name.starts_with("data.")) return true;
  if (call.what.value != 0) return false;
  const std::vector<std::string> dtypes = tables.names(tables.signatures[call.signature].dtypes);
  return std::find(dtypes.begin(), dtypes.end(), "int64") != dtypes.end();
}

// Whether the batches came from one rank: as many broadcasts carry a batch as there are steps.
bool batches_are_broadcast(const Context& context, const SampleLog& log, std::uint32_t rank) {
  const trace::Tables& tables = context.run.tables;
  const auto& calls = context.run.ranks[rank].calls;
  const auto broadcasts = std::count_if(calls.begin(), calls.end(), [&](const trace::Call& call) {
    return tables.op(call) == trace::Op::broadcast && carries_batch(tables, call);
  });
  return static_cast<std::size_t>(broadcasts) >= log.by_step[rank].size();
}

Cause explain_shared(const Context& context, const SampleLog& log, const SharedSamples& shared) {
  const std::string ranks = context.describe_ranks(shared.ranks);
  const std::string share =
      percent(static_cast<double>(shared.consumed - shared.distinct) /
              static_cast<double>(std::max<std::uint64_t>(shared.consumed, 1)));
  const std::string effective =
      fmt::format("of {} consumed, {} are different: {} of the work is repeated",
                  plural(shared.consumed, "sample"), shared.distinct, share);
  if (!shared.identical) {
    Cause out = sample_cause(context, RuleId::overlap, shared.n, shared.ranks);
    out.finding.message =
        fmt::format("{} train on samples of each other's shards from step {} on; {}", ranks,
                    shared.n, effective);
    out.finding.why =
        "the shards are not disjoint although the epoch is not over: other seeds, "
        "other data sets or wrong rank numbers in the samplers";
    if (!shared.certain) {
      out.finding.severity = Severity::warning;
      out.finding.why += "; samples drawn with replacement look like this too";
    }
    return out;
  }
  const bool broadcast = batches_are_broadcast(context, log, shared.ranks.front());
  Cause out = sample_cause(context, broadcast ? RuleId::broadcast_as_sync : RuleId::no_sharding,
                           shared.n, shared.ranks);
  out.finding.message = fmt::format(
      "{} train on the same samples in every step{}; {}, and the batch that counts is one rank's",
      ranks, broadcast ? ", which one of them broadcasts" : "", effective);
  return out;
}

Cause explain_repeated(const Context& context, const RepeatedBatch& batch, const Ranks& ranks) {
  Cause out = value_cause(context, RuleId::overlap, batch.n, {}, {batch.rank});
  Finding& f = out.finding;
  f.certainty = Certainty::observed;
  f.ranks = context.ranks(ranks);
  f.message = fmt::format(
      "{} reads the {} of step {} again in step {}, while the other ranks read new ones",
      context.describe_ranks({batch.rank}), plural(batch.samples, "sample"), batch.first, batch.n);
  f.why = "in an epoch a sampler hands out each sample once";
  f.fix =
      "look at the loader of that rank: an iterator that was made again, a worker that restarted, "
      "or a cached batch";
  return out;
}

Cause explain_doubled(const Context& context, const SampleLog& log, const Ranks& ranks) {
  Cause out =
      sample_cause(context, RuleId::overlap, log.by_step[ranks.front()].begin()->first, ranks);
  Finding& f = out.finding;
  f.severity = Severity::warning;
  f.message =
      fmt::format("{} {} batches again that {} just read", context.describe_ranks(ranks),
                  ranks.size() == 1 ? "reads" : "read", ranks.size() == 1 ? "it has" : "they have");
  f.why = "as where each worker of a loader reads all of a stream";
  f.fix = "divide an IterableDataset among its workers (torch.utils.data.get_worker_info())";
  return out;
}

// Whether these ranks read one batch in all of their steps.
bool is_one_batch(const SampleLog& log, const Ranks& ranks) {
  return std::all_of(ranks.begin(), ranks.end(), [&](std::uint32_t r) {
    const auto& steps = log.by_step[r];
    return std::all_of(steps.begin(), steps.end(),
                       [&](const auto& step) { return step.second == steps.begin()->second; });
  });
}

// Finds ranks that read the same order in every epoch, although a program that shuffles would not.
// Short epochs repeat their order by chance: one of 3 samples once in 6 times, one of 10 once
// in 3.6 million. One false alarm in a million is accepted.
std::optional<Cause> check_order(const Context& context, const SampleLog& log) {
  const double unlikely = std::log(1e-6);
  Ranks repeating;                      // ranks whose later epochs repeat the first one's order
  Ranks conclusive;                     // … where that is too unlikely for the rank alone
  std::set<SampleLog::Samples> orders;  // their samples; an equal order is no further evidence
  bool every_rank_repeats = true;       // of those that began a second epoch
  double log_chance_of_all = 0;
  std::optional<RepeatedOrder> first;
  bool ascending = true;
  for (std::uint32_t r = 0; r < log.by_step.size(); ++r) {
    SampleLog::Samples samples = log.all(r);
    const EpochOrder order = find_epoch_order(samples);
    every_rank_repeats = every_rank_repeats && order.again == order.repeated.has_value();
    if (!order.repeated) continue;
    if (!first) first = order.repeated;
    ascending = ascending && order.repeated->ascending;
    repeating.push_back(r);
    if (order.repeated->log_chance < unlikely) conclusive.push_back(r);
    if (orders.insert(std::move(samples)).second) log_chance_of_all += order.repeated->log_chance;
  }
  // Ranks that prove nothing alone may do so together, but not if some rank's order changed.
  const Ranks& ranks = every_rank_repeats && log_chance_of_all < unlikely ? repeating : conclusive;
  if (ranks.empty()) return std::nullopt;
  Cause out =
      sample_cause(context, RuleId::no_reshuffle, log.by_step[ranks.front()].begin()->first, ranks);
  Finding& f = out.finding;
  f.message = fmt::format(
      "{0} see their samples in the same order in every epoch ({1} of {1} samples of later epochs "
      "at the position of the first epoch's; {2} an epoch and rank)",
      context.describe_ranks(ranks), first->compared, plural(first->period, "sample"));
  const bool one_batch = is_one_batch(log, ranks);
  if (one_batch) {
    f.message = fmt::format("{} read the same {} in every step", context.describe_ranks(ranks),
                            plural(first->period, "sample"));
    f.why =
        "either the data set is no larger than a batch, or the loader starts again in each step";
    f.fix = "iterate over the loader; next(iter(loader)) gives its first batch each time";
  }
  if (ascending) {
    f.severity = Severity::note;
    if (!one_batch) f.why = "the order is that of the data set: shuffling is off";
  }
  return out;
}

// "2 of 4 in step 3, first at position 1: sample 7 beside sample 8".
std::string describe_pairing(const SamplePair& pair) {
  const auto& a = *pair.first;
  const auto& b = *pair.second;
  const std::size_t n = std::min(a.size(), b.size());
  std::size_t wrong = std::max(a.size(), b.size()) - n;
  std::optional<std::size_t> at;
  for (std::size_t i = 0; i < n; ++i) {
    if (a[i] == b[i]) continue;
    ++wrong;
    if (!at) at = i;
  }
  const std::string out =
      fmt::format("{} of {} in step {}", wrong, std::max(a.size(), b.size()), pair.n);
  if (!at) return out;
  return fmt::format("{}, first at position {}: sample {} beside sample {}", out, *at, a[*at],
                     b[*at]);
}

std::optional<Cause> explain_misaligned(const Context& context,
                                        const std::vector<SamplePair>& pairs,
                                        const std::string& what) {
  std::optional<SamplePair> first;
  Ranks ranks;
  std::size_t wrong = 0;
  for (const SamplePair& pair : pairs) {
    if (*pair.first == *pair.second) continue;
    ++wrong;
    if (!first || pair.n < first->n) first = pair;
    ranks.push_back(pair.rank);
  }
  if (!first) return std::nullopt;
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  Cause out = sample_cause(context, RuleId::index_misaligned, first->n, ranks);
  Finding& f = out.finding;
  f.culprits = ranks.size() < context.run.ranks.size() ? f.ranks : std::vector<trace::Rank>{};
  f.message = fmt::format("images and texts are paired wrongly on {} ({}): {}; {} of {} in all",
                          context.describe_ranks(ranks), what, describe_pairing(*first), wrong,
                          plural(pairs.size(), "batch", "batches"));
  return out;
}

// Ranks that send each other messages are parts of one model: their batches must be the same where
// they are about the same samples at all.
std::vector<SamplePair> partner_pairs(const SampleLog& log, const Replicas& replicas) {
  std::vector<SamplePair> out;
  for (const auto& [a, b] : replicas.partners) {
    std::vector<SamplePair> pairs;
    bool related = false;
    for (const auto& [n, samples] : log.by_step[a]) {
      const auto partner = log.by_step[b].find(n);
      if (partner == log.by_step[b].end()) continue;
      pairs.push_back({b, n, &samples, &partner->second});
      // Parts of one model read mostly the same samples, replicas of it mostly others.
      related |= common_share(samples, partner->second) > 0.5;
    }
    if (related) out.insert(out.end(), pairs.begin(), pairs.end());
  }
  return out;
}

}  // namespace

std::vector<Cause> check_samples(const Context& context, std::vector<std::string>& unknown) {
  std::vector<Cause> out;
  const SampleLog log = read_samples(context.run);
  Ranks with_samples;
  for (std::uint32_t r = 0; r < log.by_step.size(); ++r) {
    if (log.has(r)) with_samples.push_back(r);
  }
  if (with_samples.empty()) return out;

  const Replicas replicas = find_replicas(context);
  if (!replicas.known && with_samples.size() > 1) {
    unknown.emplace_back(
        "which ranks are replicas: several groups reduce and do not name what they carry, so "
        "samples were not compared between ranks");
  }
  if (replicas.parts) {
    unknown.emplace_back(
        "whether ranks may read the same samples: they began with different parameters, as parts "
        "of one model have, so samples were not compared (watch(..., replicas=group) says "
        "otherwise)");
  }
  if (replicas.own_data) {
    unknown.emplace_back(
        "samples that ranks have in common: they read different data sets, whose indices do not "
        "compare");
  }
  for (Ranks set : replicas.sets) {
    std::erase_if(set, [&](std::uint32_t r) { return !log.has(r); });
    if (set.size() < 2) continue;
    if (auto shared = find_shared_samples(log, set)) {
      out.push_back(explain_shared(context, log, *shared));
    } else if (auto batch = find_repeated_batch(log, set)) {
      out.push_back(explain_repeated(context, *batch, set));
    }
  }
  if (const Ranks doubled = find_doubled(log, with_samples); !doubled.empty())
    out.push_back(explain_doubled(context, log, doubled));
  if (auto order = check_order(context, log)) out.push_back(std::move(*order));
  const auto add_misaligned = [&](const std::vector<SamplePair>& pairs, const std::string& what) {
    if (auto found = explain_misaligned(context, pairs, what)) out.push_back(std::move(*found));
  };
  add_misaligned(find_sample_pairs(context.run), "two loaders of a rank");
  add_misaligned(partner_pairs(log, replicas), "ranks that hold parts of one model");
  return out;
}

}  // namespace lockstep::verify
