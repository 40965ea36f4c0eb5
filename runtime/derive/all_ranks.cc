#include "runtime/derive/all_ranks.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/check.h"
#include "base/files/read_file.h"
#include "base/files/write_file.h"
#include "base/result.h"
#include "base/sha256.h"
#include "base/status_line.h"
#include "base/text.h"
#include "runtime/derive/derivation_plan.h"
#include "runtime/derive/lone_run.h"
#include "runtime/derive/plan_scenarios.h"
#include "runtime/launch/run_folder.h"
#include "trace/derivation.h"

namespace lockstep::runtime {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBroadcastBytes = std::size_t{1} << 30U;

// "first-0": the folder of a history by its number, which is that of the condition of its first
// step where nothing else counts.
std::string history_folder(std::size_t history) { return fmt::format("first-{}", history); }

// The ranks of a class may be every second one, which takes a line for each.
std::string shortened(const std::string& ranks) {
  constexpr std::size_t kMax = 40;
  if (ranks.size() <= kMax) return ranks;
  return fmt::format("{}, …", ranks.substr(0, ranks.rfind(',', kMax)));
}

trace::ConditionId condition_id(std::size_t index) {
  return trace::ConditionId(static_cast<std::uint32_t>(index));
}

std::vector<trace::ConditionId> condition_ids(const std::vector<std::size_t>& indices) {
  std::vector<trace::ConditionId> out;
  for (const std::size_t index : indices) out.push_back(condition_id(index));
  return out;
}

// The description of the traces. `root_begins`: the conditions of rank 0's first step and, where it
// counts, of its second one, ascending, if its broadcasts depend on them; else empty.
trace::ProductSpec spec_of(const Scenario& scenario, const DerivationPlan& plan,
                           const std::vector<std::vector<std::size_t>>& root_begins,
                           const std::vector<std::string>& origin) {
  trace::ProductSpec out;
  out.program = scenario.name;
  out.world_size = scenario.ranks;
  out.only_steps = plan.only_steps;
  out.looks_back = plan.looks_back;
  out.assumptions = plan.assumptions;
  out.assumptions.insert(out.assumptions.end(), origin.begin(), origin.end());
  for (const Condition& c : plan.conditions) {
    std::vector<std::string> has;
    for (const Modality m : c.has) has.push_back(to_string(m));
    out.conditions.push_back({c.name, c.phase, has});
  }
  if (plan.agreed) {
    out.choice = trace::ProductSpec::Choice::agreed;
  } else {
    for (const std::vector<int>& ranks : plan.together)
      out.together.emplace_back(ranks.begin(), ranks.end());
  }
  for (std::size_t step = 0; step < root_begins.size(); ++step)
    out.allowed.push_back(
        {{0}, {static_cast<std::int64_t>(step)}, condition_ids(root_begins[step])});
  for (const DerivationPlan::Allowed& a : plan.allowed) {
    out.allowed.push_back({{a.ranks.begin(), a.ranks.end()}, a.steps, condition_ids(a.conditions)});
  }
  for (const DerivationPlan::History& history : plan.histories()) {
    trace::ProductSpec::History& added = out.histories.emplace_back(
        condition_id(history.first), history_folder(out.histories.size()));
    if (history.second) added.second = condition_id(*history.second);
  }
  out.steps = condition_ids(plan.later_steps());
  return out;
}

// Records the traces of all ranks under all histories.
class Deriver {
 public:
  Deriver(const Scenario& scenario, const DerivationPlan& plan, const DeriveAllOptions& options,
          Interrupts& interrupts)
      : scenario_(scenario),
        plan_(plan),
        options_(options),
        interrupts_(interrupts),
        histories_(plan_.histories()) {}

  // Returns the folders with a product.json (see derive_all).
  Result<std::vector<std::string>> derive() {
    find_classes();
    if (const Status ok = write_scenarios(); !ok) return ok.error();
    if (const Status ok = look_at_all(); !ok) return ok.error();
    const Result<std::vector<std::vector<std::size_t>>> lists = roots_by_broadcasts();
    if (!lists) return lists.error();
    const Result<std::vector<std::vector<std::size_t>>> groups = whole_products(*lists);
    if (!groups) return groups.error();
    std::vector<std::string> out;
    for (const std::vector<std::size_t>& roots : *groups) {
      const std::vector<std::vector<std::size_t>> possible = possible_of(roots);
      if (possible.front().empty() && groups->size() > 1) continue;
      if (const Status ok = copy_rank_0(roots.front()); !ok) return ok.error();
      const fs::path folder = root_folder(roots.front());
      trace::ProductSpec spec =
          spec_of(scenario_, plan_,
                  groups->size() > 1 ? possible : std::vector<std::vector<std::size_t>>(), origin_);
      // Where all ranks are in rank 0's condition, they begin no other history than it does: with
      // its broadcasts they would train on other batches there than these say.
      if (plan_.agreed && groups->size() > 1) {
        std::vector<trace::ProductSpec::History> begun;
        for (const std::size_t root : roots) begun.push_back(spec.histories[root]);
        spec.histories = std::move(begun);
      }
      spec.classes = classes_;
      if (!classes_.empty()) spec.copy_ranks = scenario_.ranks_of_copy();
      if (const Status ok =
              write_file((folder / "product.json").string(), trace::product_text(spec));
          !ok) {
        return ok.error();
      }
      out.push_back(folder.string());
    }
    LOCKSTEP_CHECK(!out.empty(), "a scenario allows some first step");
    return out;
  }

 private:
  fs::path root_folder(std::size_t root) const {
    return fs::path(options_.folder) / fmt::format("root-{}", root);
  }
  std::string broadcasts(std::size_t root) const {
    return (root_folder(root) / "broadcasts").string();
  }
  std::string scenario_file(std::size_t first) const {
    return (fs::path(options_.folder) / fmt::format("scenario-{}.yaml", first)).string();
  }

  void find_classes() {
    others_ = teams(scenario_);
    if (scenario_.ranks > kMaxRanksRun) {
      // Ranks of copies stand for each other only where they may meet the same: what they do within
      // their copy is looked at once.
      const std::vector<std::int32_t> traced = scenario_.ranks_of_copy() > 0
                                                   ? representatives(scenario_, allowed_by_rank())
                                                   : representatives(scenario_, kind_by_rank());
      std::erase_if(others_, [&](const std::vector<int>& team) {
        return traced[static_cast<std::size_t>(team.front())] != team.front();
      });
      std::map<std::int32_t, std::vector<std::int32_t>> classes;
      for (std::int32_t rank = 0; rank < scenario_.ranks; ++rank)
        classes[traced[static_cast<std::size_t>(rank)]].push_back(rank);
      for (const auto& [rank, ranks] : classes) {
        classes_.push_back({rank, ranks});
        if (ranks.size() == 1) continue;
        origin_.push_back(fmt::format("ranks {} call what rank {} calls, which was derived",
                                      shortened(ranges(ranks)), rank));
      }
    }
    team_0_ = others_.front();
    others_.erase(others_.begin());
  }

  // By rank: the number of the kind that it is of. Who can never have a batch does not show what
  // those do who can.
  std::vector<std::uint32_t> kind_by_rank() const {
    const auto last = static_cast<std::uint32_t>(plan_.kinds.size() - 1);
    std::vector<std::uint32_t> out(static_cast<std::size_t>(scenario_.ranks), last);
    for (std::uint32_t kind = 0; kind < last; ++kind)
      for (const int rank : plan_.kinds[kind].ranks) out[static_cast<std::size_t>(rank)] = kind;
    return out;
  }

  // By rank: a number of the entries of `allowed` that name it, and so of what it may meet.
  std::vector<std::uint32_t> allowed_by_rank() const {
    std::vector<std::vector<std::uint32_t>> named(static_cast<std::size_t>(scenario_.ranks));
    for (std::uint32_t i = 0; i < plan_.allowed.size(); ++i)
      for (const int rank : plan_.allowed[i].ranks)
        named[static_cast<std::size_t>(rank)].push_back(i);
    std::map<std::vector<std::uint32_t>, std::uint32_t> numbers;
    std::vector<std::uint32_t> out;
    for (const std::vector<std::uint32_t>& entries : named)
      out.push_back(
          numbers.emplace(entries, static_cast<std::uint32_t>(numbers.size())).first->second);
    return out;
  }

  Status write_scenarios() {
    const Result<std::string> text = read_input(scenario_.file);
    if (!text) return text.error();
    origin_.push_back(fmt::format("the scenario's text has the SHA-256 {}", sha256(*text)));
    for (std::size_t first = 0; first < histories_.size(); ++first) {
      const Result<std::string> history =
          history_scenario(*text, scenario_file(first), plan_, histories_[first]);
      if (!history) return history.error();
      if (const Status ok = write_file(scenario_file(first), *history); !ok) return ok;
    }
    return Status::ok();
  }

  // Rank 0 runs first, under all histories. The others then run with its broadcasts under history
  // 0; and again with those of another history, but only if these differ (`unless_same_as`).
  Status look_at_all() {
    std::vector<LoneRanks> all;
    const auto add = [&](std::size_t root, std::size_t first, const std::vector<int>& ranks) {
      LoneRanks out{scenario_file(first),
                    ranks,
                    (root_folder(root) / history_folder(first)).string(),
                    broadcasts(root),
                    history_dissent(plan_, histories_[first]),
                    {}};
      if (ranks.front() != 0 && root != 0) out.unless_same_as = broadcasts(0);
      all.push_back(std::move(out));
    };
    for (std::size_t root = 0; root < histories_.size(); ++root) add(root, root, team_0_);
    for (std::size_t root = 0; root < histories_.size(); ++root) {
      for (std::size_t first = 0; first < histories_.size(); ++first) {
        if (const Status ok = make_folder((root_folder(root) / history_folder(first)).string());
            !ok) {
          return ok;
        }
        for (const std::vector<int>& ranks : others_) add(root, first, ranks);
      }
    }
    StatusLine line({.silent = options_.quiet});
    const Result<std::string> version = run_alone(
        all, {options_.worker, options_.folder, options_.on_meta}, interrupts_,
        [&](std::size_t done) { line.show(fmt::format("deriving {} of {}", done, all.size())); });
    if (!version) return version.error();
    origin_.push_back(fmt::format("derived by {}", *version));
    if (options_.on_meta) origin_.emplace_back("tensors had shapes and no values (meta device)");
    return Status::ok();
  }

  // The histories, as beginnings of rank 0, by their numbers: those with the same broadcasts
  // together, in the order of their first ones. Others than rank 0 ran in the folder of each list's
  // first one.
  Result<std::vector<std::vector<std::size_t>>> roots_by_broadcasts() const {
    std::vector<std::string> texts;
    std::vector<std::vector<std::size_t>> out;
    for (std::size_t root = 0; root < histories_.size(); ++root) {
      Result<std::string> text = read_file(broadcasts(root), kBroadcastBytes);
      if (!text) return text.error();
      const auto at = std::find(texts.begin(), texts.end(), *text) - texts.begin();
      if (at == std::ssize(texts)) {
        texts.push_back(std::move(*text));
        out.emplace_back();
      }
      out[static_cast<std::size_t>(at)].push_back(root);
    }
    return out;
  }

  // Lists that hold all pairs of some first and some second conditions, as they are; others in one
  // for each first condition. So what rank 0 may be in in each step says which list is meant.
  Result<std::vector<std::vector<std::size_t>>> whole_products(
      const std::vector<std::vector<std::size_t>>& lists) const {
    std::vector<std::vector<std::size_t>> out;
    for (const std::vector<std::size_t>& roots : lists) {
      std::map<std::size_t, std::vector<std::size_t>> by_first;
      std::set<std::size_t> seconds;
      for (const std::size_t root : roots) {
        by_first[histories_[root].first].push_back(root);
        seconds.insert(histories_[root].second.value_or(0));
      }
      if (roots.size() == by_first.size() * seconds.size()) {
        out.push_back(roots);
        continue;
      }
      for (const auto& [first, some] : by_first) {
        // Who has root 0's broadcasts ran only there (look_at_all()).
        for (std::size_t h = 0; roots.front() == 0 && some.front() != 0 && h < histories_.size();
             ++h)
          for (const std::vector<int>& ranks : others_)
            if (const Status ok = copy_traces(ranks, h, 0, some.front()); !ok) return ok.error();
        out.push_back(some);
      }
    }
    return out;
  }

  // What rank 0 may be in in step 0 and, where it counts, in step 1 of these histories; empty lists
  // if it can begin none of them.
  std::vector<std::vector<std::size_t>> possible_of(const std::vector<std::size_t>& roots) const {
    std::set<std::size_t> firsts, seconds;
    const auto may = [&](std::int64_t step, std::size_t condition) {
      return rank_0_may_be_in(plan_, scenario_.ranks, step, condition);
    };
    for (const std::size_t root : roots) {
      const DerivationPlan::History& history = histories_[root];
      if (!may(0, history.first) || (history.second && !may(1, *history.second))) continue;
      firsts.insert(history.first);
      if (history.second) seconds.insert(*history.second);
    }
    std::vector<std::vector<std::size_t>> out = {{firsts.begin(), firsts.end()}};
    if (plan_.second_counts) out.emplace_back(seconds.begin(), seconds.end());
    return out;
  }

  // Rank 0 (with its team) ran once per history. Copy its traces into the folder of each root.
  Status copy_rank_0(std::size_t root) {
    for (std::size_t first = 0; first < histories_.size(); ++first)
      if (const Status ok = copy_traces(team_0_, first, first, root); !ok) return ok;
    return Status::ok();
  }

  // Of a history, from the folder of one root into that of another.
  Status copy_traces(const std::vector<int>& ranks, std::size_t history, std::size_t from,
                     std::size_t to) const {
    if (from == to) return Status::ok();
    for (const int rank : ranks) {
      std::error_code failed;
      fs::copy_file(ring_file((root_folder(from) / history_folder(history)).string(), rank),
                    ring_file((root_folder(to) / history_folder(history)).string(), rank),
                    fs::copy_options::overwrite_existing, failed);
      if (failed)
        return system_error(fmt::format("cannot copy rank {}'s trace", rank), failed.value(),
                            options_.folder);
    }
    return Status::ok();
  }

  const Scenario& scenario_;
  const DerivationPlan& plan_;
  const DeriveAllOptions& options_;
  Interrupts& interrupts_;
  std::vector<DerivationPlan::History> histories_;
  std::vector<int> team_0_ = {0};         // rank 0, and the ranks that must run with it
  std::vector<std::vector<int>> others_;  // the other ranks to run, in teams
  std::vector<trace::ProductSpec::RankClass> classes_;
  std::vector<std::string> origin_;  // what the derivation is valid for
};

}  // namespace

Result<std::vector<std::string>> derive_all(const Scenario& scenario, const DerivationPlan& plan,
                                            const DeriveAllOptions& options,
                                            Interrupts& interrupts) {
  return Deriver(scenario, plan, options, interrupts).derive();
}

bool rules_say_all(const Scenario& scenario) {
  if (scenario.data.source == "shapes" && scenario.data.text_only == 0) return true;
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    for (int step = 0; step < scenario.train.steps; ++step) {
      if (scenario.rule_for(rank, step) == nullptr) return false;
    }
  }
  return true;
}

Result<bool> derive_on_meta(const Scenario& scenario, std::optional<bool> asked,
                            std::optional<std::string> obstacle) {
  if (!obstacle) obstacle = needs_values(scenario);
  const bool many = scenario.ranks > kMaxRanksRun;
  const bool large = scenario.model.image != "resnet-small" || scenario.model.text != "bert-small";
  if (!asked) return !obstacle && (many || large);
  if (*asked && obstacle) {
    return Error{fmt::format("this job cannot be derived on the meta device: {}", *obstacle),
                 {scenario.file},
                 "derive it with --no-meta"};
  }
  return *asked;
}

}  // namespace lockstep::runtime
