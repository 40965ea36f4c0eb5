#include "runtime/derive/derivation_plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "base/text.h"
#include "runtime/derive/generated_texts.h"

namespace lockstep::runtime {

namespace {

using Remedy = Scenario::Remedy::Kind;

const std::vector<Modality> kBoth = {Modality::image, Modality::text};
const std::vector<Modality> kText = {Modality::text};

// The phase of steps in which a rank votes against images.
constexpr const char* kOneHasNone = "one has none";

bool holds_image(const std::vector<Modality>& has) {
  return std::any_of(has.begin(), has.end(), [](Modality m) { return m != Modality::text; });
}

bool scales_losses(const Scenario& s) {
  return s.train.precision == Scenario::Train::Precision::float16;
}

// The modality rules of the batches that ranks train on. A batch that is broadcast is rank 0's.
std::vector<Scenario::Data::Rule> rules_of(const Scenario& s) {
  if (!s.data.broadcast) return s.data.modality;
  std::vector<Scenario::Data::Rule> out;
  for (Scenario::Data::Rule rule : s.data.modality) {
    const auto& ranks = rule.ranks;
    if (!ranks.empty() && std::find(ranks.begin(), ranks.end(), 0) == ranks.end()) continue;
    rule.ranks.clear();
    out.push_back(std::move(rule));
  }
  return out;
}

class Planner {
 public:
  explicit Planner(const Scenario& scenario)
      : s_(scenario), rules_(rules_of(scenario)), generations_(generated_texts(scenario)) {}

  DerivationPlan plan() {
    const bool alternates =
        s_.remedy.kind == Remedy::alternating && s_.fault != Fault::alternating_per_rank;
    using Sampler = Scenario::Data::Sampler;
    const bool balanced =
        (s_.data.sampler == Sampler::balanced || s_.data.sampler == Sampler::dealt) &&
        s_.data.modality.empty();
    if (const int replica = s_.ranks_of_replica(); replica > 1) {
      out_.together = teams(s_);
      out_.agreed = s_.ranks == replica;
    }
    // Ranks agree if the step number, the sampler or rank 0's batch decides for all of them.
    out_.agreed = agreed_ = out_.agreed || alternates || balanced || s_.data.broadcast;
    find_kinds();
    for (const std::vector<Modality>& has : {kBoth, kText})
      if (may_have(has)) add(has);
    for (const Scenario::Data::Rule& rule : rules_) {
      if (may_have(rule.has) && indices(rule.has).empty()) add(rule.has);
    }
    if (scales_losses(s_)) add_overflow();
    out_.gradients_stay = s_.fault == Fault::zero_grad_forgotten;
    add_generation();
    out_.looks_back = looks_back();
    // The Reducer knows the graph after the first step, and arranges its buckets after the second.
    // More pairs than of three conditions take long.
    constexpr std::size_t kMaxSeconds = 3;
    out_.second_counts = s_.strategy.kind == Scenario::Strategy::Kind::ddp &&
                         s_.strategy.static_graph && out_.conditions.size() <= kMaxSeconds &&
                         out_.first_conditions() == out_.conditions.size();
    allow();
    allow_generation();
    assume();
    return std::move(out_);
  }

 private:
  // FSDP gathers ahead what the step before used, which is the same whatever texts it generated.
  bool looks_back() const {
    constexpr std::size_t kMaxConditions = 4;  // more pairs of them take long
    const std::vector<Condition>& all = out_.conditions;
    const bool batches_differ = std::any_of(all.begin(), all.end(), [&](const Condition& c) {
      return c.has != all.front().has || c.dissent != all.front().dissent;
    });
    return s_.strategy.kind == Scenario::Strategy::Kind::fsdp && s_.strategy.prefetch &&
           batches_differ && all.size() <= kMaxConditions && out_.first_conditions() == all.size();
  }

  // Whether some rank's batch may hold this in some step.
  bool may_have(const std::vector<Modality>& has) const {
    return std::any_of(out_.kinds.begin(), out_.kinds.end(), [&](const auto& kind) {
      return std::find(kind.has.begin(), kind.has.end(), has) != kind.has.end();
    });
  }
  bool may_be_text() const { return may_have(kText); }

  // Whether the sampler may draw a batch without images.
  bool draws_text() const { return s_.data.source == "manifest" || s_.data.text_only > 0; }

  // By the rules; the sampler draws none.
  bool may_have_videos() const {
    return std::any_of(rules_.begin(), rules_.end(),
                       [](const auto& rule) { return rule.shows(Modality::video); });
  }

  // Whether a rule covers every rank and step, so the sampler decides nothing.
  bool all_ruled() const {
    return std::any_of(rules_.begin(), rules_.end(),
                       [](const auto& rule) { return rule.ranks.empty() && rule.steps.empty(); });
  }

  // With a vote, the other ranks' batches are part of the condition: the result of the vote.
  void add(const std::vector<Modality>& has) {
    std::string name;
    for (const Modality modality : has)
      name += fmt::format("{}{}", name.empty() ? "" : "+", to_string(modality));
    if (s_.remedy.kind != Remedy::presence_vote) {
      out_.conditions.push_back({name, "", has});
      return;
    }
    if (holds_image(has)) {
      out_.conditions.push_back({fmt::format("{}, as all have", name), "all have images", has});
      // If ranks agree on what their batches hold, or none can lack images, nobody dissents.
      if (!agreed_ && may_be_text())
        out_.conditions.push_back(
            {fmt::format("{}, another has none", name), kOneHasNone, has, true});
    } else {
      out_.conditions.push_back({name, kOneHasNone, has, true});
    }
  }

  void add_overflow() {
    const std::vector<Condition> finite = out_.conditions;
    // With agreement on overflow all ranks skip the step together, so an overflow is a phase of its
    // own. With the fault each rank decides by itself.
    if (s_.fault != Fault::local_overflow) {
      for (Condition& c : out_.conditions) c.phase += c.phase.empty() ? "finite" : ", finite";
    }
    for (Condition c : finite) {
      if (s_.fault != Fault::local_overflow) {
        if (c.dissent) continue;  // dissent in the vote cannot be told from dissent by overflow
        c.phase += c.phase.empty() ? "overflow" : ", overflow";
        c.name += ", overflow on some rank";
        c.dissent = true;
      } else {
        if (!holds_image(c.has)) continue;
        c.name += ", own overflow";
        c.overflow = true;
      }
      out_.conditions.push_back(std::move(c));
    }
  }

  // Each condition with each length of the ranks' texts.
  void add_generation() {
    const std::set<Tokens> lengths = lengths_of(generations_);
    if (s_.train.generate.every == 0) return;
    const std::vector<Condition> steps = std::exchange(out_.conditions, {});
    for (const Tokens& tokens : lengths) {
      for (Condition c : steps) {
        c.tokens = tokens;
        // What the ranks agree on is the step, not the length of their own texts.
        if (out_.agreed) c.phase += c.phase.empty() ? c.name : fmt::format(", {}", c.name);
        if (lengths.size() > 1)
          c.name += tokens ? fmt::format(", then {}", plural(*tokens, "token")) : ", then no texts";
        out_.conditions.push_back(std::move(c));
      }
    }
    out_.agreed = false;
    if (s_.train.generate.every > 1) out_.only_steps = s_.train.steps;
  }

  // The first entry that fits a rank and a step is then of the first that fits of either list.
  void allow_generation() {
    if (s_.train.generate.every == 0) return;
    std::vector<DerivationPlan::Allowed> by_batch = std::exchange(out_.allowed, {});
    by_batch.emplace_back();
    for (std::size_t i = 0; i < out_.conditions.size(); ++i)
      by_batch.back().conditions.push_back(i);
    for (const DerivationPlan::Allowed& batch : by_batch) {
      for (const GeneratedTexts& generation : generations_) {
        auto ranks = in_both(batch.ranks, generation.ranks);
        auto steps = in_both(batch.steps, generation.steps);
        if (!ranks || !steps) continue;
        std::vector<std::size_t> conditions;
        std::copy_if(batch.conditions.begin(), batch.conditions.end(),
                     std::back_inserter(conditions),
                     [&](std::size_t c) { return out_.conditions[c].tokens == generation.tokens; });
        out_.allowed.push_back({std::move(*ranks), std::move(*steps), std::move(conditions)});
      }
    }
  }

  std::vector<std::size_t> indices(const std::vector<Modality>& has) const {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < out_.conditions.size(); ++i) {
      if (out_.conditions[i].has == has) out.push_back(i);
    }
    return out;
  }

  void allow() {
    if (s_.remedy.kind == Remedy::alternating) {
      return;
    }
    for (const Scenario::Data::Rule& rule : rules_) {
      std::vector<std::size_t> conditions = indices(rule.has);
      if (conditions.empty()) continue;  // the rules before it leave it nothing to decide
      out_.allowed.push_back({whole_replicas(rule.ranks), rule.steps, std::move(conditions)});
    }
    // If no rule decides, the sampler draws. Without text-only items it draws images only.
    const bool only_images = !draws_text() && (may_be_text() || may_have_videos());
    if (!all_ruled() && (only_images || may_have_videos())) {
      std::vector<std::size_t> drawn = indices(kBoth);
      if (draws_text()) {
        for (const std::size_t i : indices(kText)) drawn.push_back(i);
      }
      out_.allowed.push_back({{}, {}, std::move(drawn)});
    }
    if (s_.remedy.kind == Remedy::presence_vote && !out_.allowed.empty()) forbid_idle_dissent();
  }

  // Whether a rank may lack images in the step.
  bool may_lack_images(std::int64_t step) const {
    std::set<int> ranks = {0};
    for (const Scenario::Data::Rule& rule : rules_)
      ranks.insert(rule.ranks.begin(), rule.ranks.end());
    int unnamed = 0;  // who stands for all whom no rule names
    while (ranks.contains(unnamed)) ++unnamed;
    if (unnamed < s_.ranks) ranks.insert(unnamed);
    return std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
      const Scenario::Data::Rule* rule = s_.rule_for(rank, step);
      return rule == nullptr ? draws_text() : !holds_image(rule->has);
    });
  }

  // In a step in which every rank has images, none votes against them. The entries of `allowed` are
  // written once for such steps that a rule names, for others that it names, and for all others.
  void forbid_idle_dissent() {
    std::set<std::int64_t> named;
    for (const DerivationPlan::Allowed& entry : out_.allowed)
      named.insert(entry.steps.begin(), entry.steps.end());
    std::int64_t other = 0;
    while (named.contains(other)) ++other;
    std::vector<std::int64_t> lacking, full;
    for (const std::int64_t step : named) (may_lack_images(step) ? lacking : full).push_back(step);
    const std::vector<DerivationPlan::Allowed> all = std::exchange(out_.allowed, {});
    const auto add = [&](const DerivationPlan::Allowed& entry, std::vector<std::int64_t> steps,
                         bool may_lack) {
      DerivationPlan::Allowed own{entry.ranks, std::move(steps), entry.conditions};
      if (!may_lack)
        std::erase_if(own.conditions, [&](std::size_t c) {
          return out_.conditions[c].phase.starts_with(kOneHasNone);
        });
      out_.allowed.push_back(std::move(own));
    };
    for (const auto& steps : {lacking, full}) {
      for (const DerivationPlan::Allowed& entry : all) {
        if (steps.empty()) break;
        if (auto both = in_both(entry.steps, steps)) add(entry, std::move(*both), steps == lacking);
      }
    }
    for (const DerivationPlan::Allowed& entry : all)
      if (entry.steps.empty()) add(entry, {}, may_lack_images(other));
  }

  // Rules name a replica's first rank, which stands for all its ranks.
  std::vector<int> whole_replicas(const std::vector<int>& ranks) const {
    std::vector<int> out;
    for (const int first : ranks)
      for (int stage = 0; stage < s_.ranks_of_replica(); ++stage) out.push_back(first + stage);
    return out;
  }

  // What the batches of a rank may hold; `named`: whether the rules name it. A rule that others
  // leave nothing to decide does not count.
  std::vector<std::vector<Modality>> contents_of(int rank, bool named) const {
    if (s_.remedy.kind == Remedy::alternating) return {kBoth, kText};
    std::vector<std::vector<Modality>> out;
    const auto add_contents = [&](const std::vector<Modality>& has) {
      if (std::find(out.begin(), out.end(), has) == out.end()) out.push_back(has);
    };
    std::set<std::int64_t> decided;
    for (const Scenario::Data::Rule& rule : rules_) {
      const auto& ranks = rule.ranks;
      if (!ranks.empty() && (!named || std::find(ranks.begin(), ranks.end(), rank) == ranks.end()))
        continue;
      bool decides = rule.steps.empty();
      for (const std::int64_t step : rule.steps) decides |= decided.insert(step).second;
      if (decides) add_contents(rule.has);
      if (rule.steps.empty()) return out;
    }
    add_contents(kBoth);
    if (draws_text()) add_contents(kText);
    return out;
  }

  // O(ranks that rules name · what rules name).
  void find_kinds() {
    std::set<int> named;
    for (const Scenario::Data::Rule& rule : rules_)
      named.insert(rule.ranks.begin(), rule.ranks.end());
    std::map<std::vector<std::vector<Modality>>, std::vector<int>> kinds;
    for (const int rank : named) kinds[contents_of(rank, true)].push_back(rank);
    // The ranks that no rule names are not listed, unless more ranks are of another kind.
    const auto replicas = static_cast<std::size_t>(s_.ranks / s_.ranks_of_replica());
    const std::vector<std::vector<Modality>> others = contents_of(-1, false);
    std::size_t most = replicas - named.size();
    const auto same = kinds.find(others);
    if (same != kinds.end()) most += same->second.size();
    std::vector<std::vector<Modality>> unlisted = others;
    for (const auto& [has, ranks] : kinds) {
      if (ranks.size() <= most) continue;
      most = ranks.size();
      unlisted = has;
    }
    if (unlisted != others) {
      for (int rank = 0; rank < s_.ranks; rank += s_.ranks_of_replica())
        if (!named.contains(rank)) kinds[others].push_back(rank);
    }
    kinds.erase(unlisted);
    for (auto& [has, ranks] : kinds) {
      std::sort(ranks.begin(), ranks.end());
      out_.kinds.push_back({std::move(ranks), has});
    }
    out_.kinds.push_back({{}, std::move(unlisted)});
  }

  void assume() {
    out_.assumptions.emplace_back(
        out_.second_counts
            ? "what a rank calls in a step depends on that step's condition and on those of the "
              "first two steps"
        : out_.looks_back
            ? "what a rank calls in a step depends on that step's condition, on that of the step "
              "before and on the first step's"
            : "what a rank calls in a step depends on that step's condition and on the first "
              "step's");
    if (s_.train.accumulation != Scenario::Train::Accumulation()) {
      out_.assumptions.emplace_back("the micro-batches of a step hold the same modalities");
    }
    if (s_.train.checkpoint.every > 0) {
      out_.assumptions.emplace_back("every step saves a checkpoint");
    }
    if (s_.train.evaluate || s_.watch.every > 0) {
      out_.assumptions.emplace_back("evaluation and the values that are watched are left out");
    }
    if (s_.train.generate.every > 0) {
      out_.assumptions.emplace_back(
          "each rank's texts end after the number of tokens that the scenario says");
    }
    if (agreed_) {
      out_.assumptions.emplace_back("all ranks have the same condition in a step");
    }
  }

  const Scenario& s_;
  const std::vector<Scenario::Data::Rule> rules_;
  const std::vector<GeneratedTexts> generations_;
  bool agreed_ = false;
  DerivationPlan out_;
};

}  // namespace

// Where only some steps are followed by texts, step 0 is not: "every: 2" is after steps 1, 3, …
std::size_t DerivationPlan::first_conditions() const {
  const auto other = std::find_if(conditions.begin(), conditions.end(), [&](const Condition& c) {
    return c.tokens.has_value() != conditions.front().tokens.has_value();
  });
  return static_cast<std::size_t>(other - conditions.begin());
}

namespace {

// Steps in which each of n conditions follows each of them, itself included, twice: the cycle
// 0 0 1 0 2 1 1 2 2, in which each pair comes once, is run through twice and closed.
std::vector<std::size_t> all_pairs_twice(std::size_t n) {
  std::vector<std::size_t> out;
  for (int round = 0; round < 2; ++round) {
    for (std::size_t a = 0; a < n; ++a) {
      out.push_back(a);
      for (std::size_t b = a + 1; b < n; ++b) out.insert(out.end(), {a, b});
    }
  }
  out.push_back(0);
  return out;
}

}  // namespace

std::vector<std::size_t> DerivationPlan::later_steps() const {
  std::vector<std::size_t> out;
  if (looks_back) {
    out = all_pairs_twice(conditions.size());
    if (gradients_stay)
      for (std::size_t& c : out) c = conditions.size() - 1 - c;
    return out;
  }
  const std::size_t without = first_conditions();
  const std::size_t with = conditions.size() - without;
  const std::size_t most = std::max(without, with);
  for (std::size_t i = 0; i < 2 * most; ++i) {
    const bool poorest_first = gradients_stay && i < most;
    const std::size_t own = poorest_first ? most - 1 - i : i % most;
    if (with > 0) out.push_back(without + own % with);
    out.push_back(own % without);
  }
  return out;
}

std::vector<DerivationPlan::History> DerivationPlan::histories() const {
  std::vector<History> out;
  for (std::size_t first = 0; first < first_conditions(); ++first) {
    if (!second_counts) out.push_back({first});
    for (std::size_t second = 0; second < conditions.size() && second_counts; ++second)
      out.push_back({first, second});
  }
  return out;
}

std::vector<std::size_t> DerivationPlan::steps_of(const History& history) const {
  std::vector<std::size_t> out = {history.first};
  if (history.second) out.push_back(*history.second);
  const std::vector<std::size_t> later = later_steps();
  out.insert(out.end(), later.begin(), later.end());
  return out;
}

bool rank_0_may_be_in(const DerivationPlan& plan, int ranks, std::int64_t step,
                      std::size_t condition) {
  // Who shares rank 0's batch is in its condition; the others are in one of the same phase.
  std::vector<bool> alike(static_cast<std::size_t>(ranks), plan.agreed);
  alike[0] = true;
  if (!plan.together.empty())
    for (const int rank : plan.together.front()) alike[static_cast<std::size_t>(rank)] = true;
  std::vector<bool> decided(static_cast<std::size_t>(ranks));
  const auto fits = [&](std::size_t rank, const DerivationPlan::Allowed& entry) {
    if (decided[rank]) return true;
    decided[rank] = true;
    return std::any_of(entry.conditions.begin(), entry.conditions.end(), [&](std::size_t c) {
      return alike[rank] ? c == condition
                         : plan.conditions[c].phase == plan.conditions[condition].phase;
    });
  };
  for (const DerivationPlan::Allowed& entry : plan.allowed) {
    if (!entry.steps.empty() &&
        std::find(entry.steps.begin(), entry.steps.end(), step) == entry.steps.end())
      continue;
    for (const int rank : entry.ranks)
      if (!fits(static_cast<std::size_t>(rank), entry)) return false;
    if (!entry.ranks.empty()) continue;
    for (std::size_t rank = 0; rank < decided.size(); ++rank)
      if (!fits(rank, entry)) return false;
    break;  // it decides for all who are left
  }
  return true;
}

std::vector<std::vector<int>> teams(const Scenario& scenario) {
  std::vector<std::vector<int>> out;
  const int replica = scenario.ranks_of_replica();
  for (int first = 0; first < scenario.ranks; first += replica) {
    out.emplace_back();
    for (int stage = 0; stage < replica; ++stage) out.back().push_back(first + stage);
  }
  return out;
}

Result<DerivationPlan> derivation_plan(const Scenario& scenario) {
  const auto refuse = [&](const std::string& why, std::string fix) {
    return Error{
        fmt::format("this job cannot be derived: {}", why), {scenario.file}, std::move(fix)};
  };
  if (scenario.replays()) {
    return refuse(
        "a replay has no model to derive calls from; it has the calls themselves",
        "`lockstep verify` judges them, `lockstep simulate trace` times them: give either the "
        "folder that \"replay\" names");
  }
  if (scenario.data.balance != Scenario::Data::Balance::none) {
    return refuse("the ranks distribute their batches by what they measure",
                  "derive it with \"balance: none\"");
  }
  if (const std::size_t lengths = lengths_of(generated_texts(scenario)).size();
      lengths > kMaxLengths) {
    return refuse(fmt::format("its texts have {} different lengths", lengths),
                  fmt::format("derive it with {} or fewer of them, in \"generate\"", kMaxLengths));
  }
  return Planner(scenario).plan();
}

std::optional<std::string> needs_values(const Scenario& s) {
  const auto when = [](bool holds, const char* what) {
    return holds ? std::optional<std::string>(what) : std::nullopt;
  };
  for (const auto& obstacle :
       {when(scales_losses(s), "whether a float16 gradient overflows is a value"),
        when(s.data.broadcast, "the size of a batch that is broadcast is a value"),
        when(s.strategy.static_graph || s.strategy.skip_all_reduce_unused_params,
             "what DDP does with this option depends on values"),
        when(s.strategy.kind == Scenario::Strategy::Kind::pipeline,
             "the size of a pipeline's message is a value")}) {
    if (obstacle) return obstacle;
  }
  return std::nullopt;
}

std::vector<std::int64_t> history_dissent(const DerivationPlan& plan,
                                          const DerivationPlan::History& history) {
  std::vector<std::int64_t> out;
  const std::vector<std::size_t> steps = plan.steps_of(history);
  for (std::size_t step = 0; step < steps.size(); ++step) {
    if (plan.conditions[steps[step]].dissent) out.push_back(static_cast<std::int64_t>(step));
  }
  return out;
}

std::vector<std::int64_t> dissent_steps(const Scenario& scenario, int rank) {
  std::vector<std::int64_t> out;
  for (std::int64_t step = 0; step < scenario.train.steps; ++step) {
    bool dissent = false;
    for (int other = 0; other < scenario.ranks; ++other) {
      if (other == rank) continue;
      const Scenario::Data::Rule* rule = scenario.rule_for(other, step);
      // Ranks that train on one batch vote alike.
      if (scenario.remedy.kind == Remedy::presence_vote && !scenario.data.broadcast) {
        dissent |= rule != nullptr && !holds_image(rule->has);
      }
      if (scales_losses(scenario) && scenario.fault != Fault::local_overflow) {
        dissent |= scenario.outlier_factor(other, step) != 1;
      }
    }
    if (dissent) out.push_back(step);
  }
  return out;
}

std::vector<std::int32_t> representatives(const Scenario& scenario,
                                          const std::vector<std::uint32_t>& differs) {
  const bool groups_by_image =
      scenario.strategy.process_groups == Scenario::Strategy::Groups::image_ranks;
  const std::vector<std::int32_t> with_images =
      groups_by_image ? scenario.ranks_with_images(scenario.ranks) : std::vector<std::int32_t>();
  const auto kind_of = [&](int rank) {
    const bool image = std::binary_search(with_images.begin(), with_images.end(), rank);
    std::vector<int> tokens;
    for (std::int64_t step = 0; step < scenario.train.steps && scenario.train.generate.every > 0;
         ++step)
      tokens.push_back(scenario.generated_tokens(rank, step));
    return std::tuple(rank != 0, image, scenario.micro_batches(rank), tokens,
                      differs.empty() ? 0U : differs[static_cast<std::size_t>(rank)]);
  };
  // A job without copies is made of copies of one rank.
  const int size = std::max(scenario.ranks_of_copy(), 1);
  std::map<std::vector<decltype(kind_of(0))>, int> first_like;
  std::vector<std::int32_t> out;
  for (int first = 0; first < scenario.ranks; first += size) {
    std::vector<decltype(kind_of(0))> kinds;
    for (int index = 0; index < size; ++index) kinds.push_back(kind_of(first + index));
    const int like = first_like.emplace(std::move(kinds), first).first->second;
    for (int index = 0; index < size; ++index) out.push_back(like + index);
  }
  return out;
}

}  // namespace lockstep::runtime
