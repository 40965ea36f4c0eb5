#include "verify/product/decide.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "verify/product/assignments.h"
#include "verify/product/failures.h"
#include "verify/verify.h"

namespace lockstep::verify {

namespace {

constexpr std::size_t kMaxReasons = 8;
constexpr std::uint64_t kMaxCycleSteps = 20'000'000;  // in all situations together

// Whether the worst finding is a cycle of waiting ranks.
bool waits_in_cycle(const Report& report) {
  constexpr std::array kCycles = {RuleId::deadlock, RuleId::cross_group_deadlock,
                                  RuleId::p2p_cycle};
  return !report.findings.empty() &&
         std::find(kCycles.begin(), kCycles.end(), report.findings.front().rule) != kCycles.end();
}

const std::vector<std::uint32_t>& keys_of(const ProductModel& model, std::uint32_t shared) {
  static const std::vector<std::uint32_t> kNone_;
  return shared == kNothing ? kNone_ : model.sequences().shared_lists[shared];
}

// The call in words. Calls that carry the same parameters may differ in size or type: those are
// shown with it, or both sides of the difference would read alike.
std::string words_of(const ProductModel& model, std::uint32_t key) {
  const std::vector<std::string>& shown = model.sequences().shown;
  const std::string& signature = model.sequences().signatures[key];
  return std::count(shown.begin(), shown.end(), shown[key]) == 1 || shown[key] == signature
             ? shown[key]
             : fmt::format("{}: {}", shown[key], signature);
}

std::vector<std::string> shown(const ProductModel& model, std::uint32_t shared) {
  std::vector<std::string> out;
  for (const std::uint32_t key : keys_of(model, shared)) out.push_back(words_of(model, key));
  return out;
}

std::set<std::string> carried(const ProductModel& model, std::uint32_t shared) {
  std::set<std::string> out;
  for (const std::uint32_t key : keys_of(model, shared)) {
    const std::vector<std::string>& names = model.sequences().carried[key];
    out.insert(names.begin(), names.end());
  }
  return out;
}

// Fills in the channel, the two sides, the parameters and the reason.
void describe_divergence(const ProductModel& model, const std::vector<SequenceId>& sequences,
                         Counterexample& out) {
  const std::vector<ChannelId> channels = model.disagreeing(sequences);
  if (channels.empty()) return;
  const ChannelId channel = channels.front();
  out.channel = describe_channel(model.sequences().channels[channel.value]);
  const ChannelParties parties = parties_on(model, channel, sequences);
  if (parties.size() < 2) {
    out.reason.push_back(fmt::format(
        "the ranks of {} cut an exchange in ways that do not fit each other", out.channel));
    return;
  }
  // The reference is the largest party, unless it consists of ranks that the search made differ.
  const auto differs = [&](const ChannelParty& party) {
    return std::includes(out.differing.begin(), out.differing.end(), party.ranks.begin(),
                         party.ranks.end());
  };
  std::size_t reference = reference_party(parties);
  if (differs(parties[reference]))
    reference = static_cast<std::size_t>(std::find_if_not(parties.begin(), parties.end(), differs) -
                                         parties.begin());
  if (reference == parties.size()) reference = 0;
  const std::size_t deviant = reference == 0 ? 1 : 0;
  const ChannelParty& usual = parties[reference];
  const ChannelParty& other = parties[deviant];
  out.reference = {usual.ranks.front(), shown(model, usual.shared)};
  out.deviant = {other.ranks.front(), shown(model, other.shared)};
  const auto& x = keys_of(model, usual.shared);
  const auto& y = keys_of(model, other.shared);
  const auto [first, second] = std::mismatch(x.begin(), x.end(), y.begin(), y.end());
  out.first_difference = static_cast<std::size_t>(first - x.begin());
  const std::set<std::string> here = carried(model, usual.shared);
  const std::set<std::string> there = carried(model, other.shared);
  std::set_symmetric_difference(here.begin(), here.end(), there.begin(), there.end(),
                                std::back_inserter(out.what));
  const auto count = [](std::size_t n) { return n == 0 ? "no calls" : plural(n, "call"); };
  out.reason.push_back(fmt::format("in {} rank {} makes {}, rank {} {}; they differ from call {}",
                                   out.channel, usual.ranks.front().value, count(x.size()),
                                   other.ranks.front().value, count(y.size()),
                                   out.first_difference));
}

// Fills in the reason.
void describe_cycle(const ProductModel& model, const Cycle& cycle, Counterexample& out) {
  const auto words = [&](const ProductInstance& instance) {
    return fmt::format("call {} of {}", instance.index,
                       describe_channel(model.sequences().channels[instance.channel.value]));
  };
  for (std::size_t i = 0; i < cycle.links.size(); ++i) {
    const Cycle::Link& link = cycle.links[i];
    const Cycle::Link& next = cycle.links[(i + 1) % cycle.links.size()];
    out.reason.push_back(fmt::format("rank {} waits in {} before it comes to {}", link.rank,
                                     words(link.instance), words(next.instance)));
  }
}

class Decider {
 public:
  explicit Decider(const ProductModel& model) : model_(model) {}

  ProductDecision decide() {
    out_.sequences = model_.sequences().sequences.size();
    for (const auto* reasons :
         {&model_.sequences().inconclusive, &model_.situations().problems()}) {
      for (const std::string& reason : *reasons) add_reason(reason);
    }
    const bool disputes = !model_.sequences().disputed_groups.empty();
    // Something is unknown. A fault in the first step still counts: it depends on nothing unknown.
    if (!out_.why.empty()) {
      const std::vector<std::string> unknown = out_.why;
      if (!disputes && model_.situations().problems().empty()) judge_first_step();
      if (!failed_) return std::move(out_);
      ProductDecision found = conclude();
      if (!found.counterexample) found.why = unknown;
      return found;
    }
    if (disputes) return disputed();
    const RaiseSearch raises = find_raise(model_);
    for (const std::string& reason : raises.unknown) add_reason(reason);
    const std::optional<PossibleRaise>& raise = raises.first;
    for (const Situation& situation : model_.situations().all()) {
      // Situations are in order of time. The earliest failure is the answer, and steps after an
      // exception do not happen.
      if (failed_ && after(situation, *failed_)) break;
      if (!failed_ && raise && situation.kind == Situation::Kind::later &&
          situation.step > raise->step)
        break;
      judge(situation);
    }
    if (failed_) return conclude();
    if (raise) return ends_with(*raise);
    note_single_recordings();
    if (out_.why.empty()) {
      out_.verdict = ProductVerdict::safe;
      if (model_.spec().copy_ranks > 0) {
        out_.why.emplace_back(
            "ranks of one copy of the model stand for those of others: there is no certificate");
      } else if (out_.varying) {
        out_.why.emplace_back(
            "what ranks that share a batch send each other depends on the batch: there is no "
            "certificate");
      } else if (!out_.one_order) {
        out_.why.emplace_back(
            "no single order of the collectives suits all assignments, although none of them waits "
            "in a cycle: there is no certificate");
      }
    }
    return std::move(out_);
  }

 private:
  void add_reason(const std::string& reason) {
    const bool known = std::find(out_.why.begin(), out_.why.end(), reason) != out_.why.end();
    if (!known && out_.why.size() < kMaxReasons) out_.why.push_back(reason);
  }

  static bool after(const Situation& a, const Failure& failure) {
    return a.kind != failure.situation.kind || a.step != failure.situation.step;
  }

  void judge(const Situation& situation) {
    ++out_.situations;
    const Evaluation evaluation = model_.evaluate(situation);
    for (const std::string& reason : evaluation.missing) add_reason(reason);
    if (!evaluation.disagreeing.empty()) return find_divergence(situation);
    out_.varying = out_.varying || !evaluation.varying.empty();
    find_deadlock(situation, evaluation, /*device=*/false);
    if (!failed_ && model_.nccl()) find_deadlock(situation, evaluation, /*device=*/true);
  }

  // The first step depends on nothing else: a failure there happens whatever later steps do.
  void judge_first_step() {
    for (const Situation& situation : model_.situations().all()) {
      if (situation.kind == Situation::Kind::first) judge(situation);
    }
  }

  void keep(Failure failure) {
    if (!failed_ || failure.cost < failed_->cost) failed_ = std::move(failure);
  }

  void find_divergence(const Situation& situation) {
    if (usual_options(model_, situation).empty()) {
      add_reason(fmt::format("nothing was recorded for some rank in step {}", situation.step));
    } else if (auto failure = verify::find_divergence(model_, situation)) {
      keep(std::move(*failure));
    }
  }

  void find_deadlock(const Situation& situation, const Evaluation& evaluation, bool device) {
    DeadlockSearch search =
        verify::find_deadlock(model_, situation, evaluation, device, cycle_budget_);
    if (!device) out_.instances += search.instances;
    if (search.failure) return keep(std::move(*search.failure));
    out_.one_order = out_.one_order && search.one_order;
    if (!search.complete)
      add_reason(
          "ranks may come to collectives in opposite orders, and whether some assignment closes a "
          "cycle was not decided: there are too many ways");
  }

  // A condition that was recorded once may behave differently the second time (lazy
  // initialisation, caches).
  void note_single_recordings() {
    const trace::ProductSpec& spec = model_.spec();
    // The parts that steps may be, and how often each was recorded in a history. Step 1 looks back
    // on the history's own condition, so it does not count as the part of a pair.
    std::vector<std::optional<ProductOption>> used(model_.sequences().parts());
    for (const Situation& situation : model_.situations().all()) {
      if (situation.kind != Situation::Kind::later) continue;
      if (situation.step == 1 && spec.has_seconds()) continue;  // a history's own step
      for (std::int32_t r = 0; r < model_.ranks(); ++r)
        for (const ProductOption& option : model_.situations().options(situation, r))
          used[model_.sequences().under(option.previous, option.condition)] = option;
    }
    std::vector<int> recorded(used.size());
    for (std::size_t i = spec.looks_back ? 1 : 0; i < spec.steps.size(); ++i)
      ++recorded[model_.sequences().under(spec.steps[i == 0 ? 0 : i - 1], spec.steps[i])];
    for (std::size_t part = 0; part < used.size(); ++part) {
      if (!used[part] || recorded[part] >= 2) continue;
      const auto name = [&](ConditionId c) { return printable(spec.conditions[c.value].name); };
      add_reason(fmt::format(
          "\"{}\"{} comes less than twice in \"steps\", so that nothing shows that a step "
          "under it is always the same",
          name(used[part]->condition),
          spec.looks_back ? fmt::format(" after \"{}\"", name(used[part]->previous)) : ""));
    }
  }

  ProductDecision conclude() {
    Counterexample example;
    const Failure& failure = *failed_;
    example.where = failure.situation.kind == Situation::Kind::start ? Counterexample::Where::start
                    : failure.situation.kind == Situation::Kind::end ? Counterexample::Where::end
                                                                     : Counterexample::Where::step;
    example.step = std::max<std::int64_t>(failure.situation.step, 0);
    example.assignment = steps_up_to(model_, failure.situation, failure.options);
    example.differing = failure.differing;
    const std::vector<SequenceId> sequences =
        sequences_under(model_, failure.situation, failure.options);
    if (failure.cycle) {
      describe_cycle(model_, *failure.cycle, example);
    } else {
      describe_divergence(model_, sequences, example);
    }
    return proven(std::move(example),
                  failure.cycle ? ProductVerdict::may_deadlock : ProductVerdict::diverges);
  }

  ProductDecision ends_with(const PossibleRaise& raise) {
    Counterexample example;
    example.step = raise.step;
    example.assignment = raise.assignment;
    example.differing = {trace::Rank(raise.rank)};
    const auto& recorded = model_.sequences().raise(raise.history, raise.rank);
    example.reason.push_back(fmt::format("rank {} raises an exception in step {}: {}", raise.rank,
                                         raise.step, printable(recorded->what)));
    ProductDecision out = proven(std::move(example), ProductVerdict::raises);
    // Ranks that were derived together may have raised because they waited for each other.
    if (out.counterexample && waits_in_cycle(out.counterexample->report))
      out.verdict = ProductVerdict::may_deadlock;
    return out;
  }

  // Ranks that disagree about a group's members cannot agree on any call in it.
  ProductDecision disputed() {
    Counterexample example;
    const Situation start = model_.situations().all().front();
    example.where = Counterexample::Where::start;
    example.assignment = steps_up_to(model_, start, usual_options(model_, start));
    for (const std::string& name : model_.sequences().disputed_groups)
      example.reason.push_back(
          fmt::format("ranks give group \"{}\" different members", printable(name)));
    return proven(std::move(example), ProductVerdict::diverges);
  }

  ProductDecision proven(Counterexample example, ProductVerdict verdict) {
    out_.why.clear();
    if (example.assignment.steps.empty()) {
      add_reason("a difference was found, but no run that leads to it was recorded");
      for (const std::string& reason : example.reason) add_reason(reason);
      return std::move(out_);
    }
    example.run = compose(model_, example.assignment);
    example.report = verify(example.run);
    if (!shows_divergence(example.report)) {
      add_reason(
          "the sequences differ, but verify() finds nothing wrong with a run of them: the traces "
          "may not record the same things of all calls");
      for (const std::string& reason : example.reason) add_reason(reason);
      return std::move(out_);
    }
    out_.verdict = verdict;
    out_.counterexample = std::move(example);
    return std::move(out_);
  }

  const ProductModel& model_;
  ProductDecision out_;
  std::optional<Failure> failed_;
  std::uint64_t cycle_budget_ = kMaxCycleSteps;
};

}  // namespace

std::string_view to_string(ProductVerdict verdict) {
  switch (verdict) {
    case ProductVerdict::safe:
      return "safe";
    case ProductVerdict::diverges:
      return "diverges";
    case ProductVerdict::may_deadlock:
      return "may deadlock";
    case ProductVerdict::raises:
      return "raises";
    case ProductVerdict::inconclusive:
      break;
  }
  return "inconclusive";
}

bool shows_divergence(const Report& report) {
  return std::any_of(report.findings.begin(), report.findings.end(), [](const Finding& f) {
    const std::string_view family = rule(f.rule).family;
    return f.severity != Severity::note &&
           (family == "matching" || family == "blocking" || family == "modality");
  });
}

ProductDecision decide(const ProductModel& model) { return Decider(model).decide(); }

std::string describe_channel(const ProductChannel& channel) {
  if (!channel.message) return fmt::format("group {}", printable(channel.name));
  std::string out = fmt::format("messages from rank {} to rank {}", channel.members[0].value,
                                channel.members[1].value);
  if (channel.tag != trace::kNoPeerTag) out += fmt::format(", tag {}", channel.tag);
  return out;
}

ChannelParties parties_on(const ProductModel& model, ChannelId channel,
                          const std::vector<SequenceId>& sequences) {
  const trace::RankList& ranks = model.sequences().channels[channel.value].members;
  const std::set<trace::Rank> members(ranks.begin(), ranks.end());
  ChannelParties out;
  std::map<std::uint32_t, std::size_t> party_of;
  for (const trace::Rank member : members) {
    if (member.value < 0 || member.value >= model.ranks()) continue;
    const SequenceId s = sequences[static_cast<std::size_t>(member.value)];
    std::uint32_t shared = kNothing;
    if (s != kNoSequence) {
      for (const Projection& p : model.sequences().sequences[s.value].projections) {
        if (p.channel == channel) shared = p.shared;
      }
    }
    const auto [party, fresh] = party_of.emplace(shared, out.size());
    if (fresh) out.push_back({shared, {}});
    out[party->second].ranks.push_back(member);
  }
  return out;
}

std::size_t reference_party(const ChannelParties& parties) {
  std::size_t best = 0;
  for (std::size_t p = 1; p < parties.size(); ++p) {
    if (parties[p].ranks.size() > parties[best].ranks.size()) best = p;
  }
  return best;
}

}  // namespace lockstep::verify
