#include "verify/product/decide.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.h"
#include "verify/product/assignments.h"
#include "verify/product/counterexample.h"
#include "verify/verify.h"

namespace lockstep {

namespace {

constexpr std::size_t kMostReasons = 8;

class Decider {
 public:
  explicit Decider(const ProductModel& model) : model_(model) {}

  ProductDecision decide() {
    out_.sequences = model_.sequences().sequences.size();
    for (const auto* reasons :
         {&model_.sequences().inconclusive, &model_.situations().problems()}) {
      for (const std::string& reason : *reasons) say(reason);
    }
    const bool disputes = !model_.sequences().disputed_groups.empty();
    if (!out_.why.empty()) {
      const std::vector<std::string> unknown = out_.why;
      if (!disputes && model_.situations().problems().empty()) judge_first_step();
      if (!failed_) return std::move(out_);
      ProductDecision found = conclude();
      if (!found.counterexample) found.why = unknown;
      return found;
    }
    if (disputes) return disputed();
    const auto raise = first_raise();
    for (const Situation& situation : model_.situations().all()) {
      // What went wrong earlier is the answer; what a rank's exception hides comes after it.
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
      if (!out_.one_order) {
        out_.why.emplace_back(
            "no one order of the meetings suits all assignments, although none of them waits in "
            "a circle: there is no certificate");
      }
    }
    return std::move(out_);
  }

 private:
  struct Failure {
    Situation situation;
    std::vector<ProductOption> options;
    std::vector<Rank> differing;
    std::size_t cost = 0;  // ranks that differ, then their conditions that do
    std::optional<Circle> circle;
  };
  struct Raise {
    std::uint32_t history;
    std::int32_t rank;
    std::int64_t step;
    Assignment assignment;
  };

  void say(const std::string& reason) {
    const bool known = std::find(out_.why.begin(), out_.why.end(), reason) != out_.why.end();
    if (!known && out_.why.size() < kMostReasons) out_.why.push_back(reason);
  }

  static bool after(const Situation& a, const Failure& failure) {
    return a.kind != failure.situation.kind || a.step != failure.situation.step;
  }

  void judge(const Situation& situation) {
    ++out_.situations;
    const Evaluation evaluation = model_.evaluate(situation);
    for (const std::string& reason : evaluation.missing) say(reason);
    if (!evaluation.disagreeing.empty()) return find_divergence(situation);
    find_deadlock(situation, evaluation, /*device=*/false);
    if (!failed_ && model_.nccl()) find_deadlock(situation, evaluation, /*device=*/true);
  }

  // It comes before all that later steps may depend on: what goes wrong there does so whatever
  // they do.
  void judge_first_step() {
    for (const Situation& situation : model_.situations().all()) {
      if (situation.kind == Situation::Kind::first) judge(situation);
    }
  }

  void keep(Failure failure) {
    if (!failed_ || failure.cost < failed_->cost) failed_ = std::move(failure);
  }

  std::vector<std::uint32_t> sequences_of(const Situation& situation,
                                          const std::vector<ProductOption>& options) const {
    std::vector<std::uint32_t> out;
    for (std::int32_t r = 0; r < model_.ranks(); ++r) {
      out.push_back(model_.recorded(situation, r, options[static_cast<std::size_t>(r)]).sequence);
    }
    return out;
  }

  // What a sequence does where others take part.
  std::vector<std::pair<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>>> shared_part(
      std::uint32_t sequence) const {
    std::vector<std::pair<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>>> out;
    for (const Projection& p : model_.sequences().sequences[sequence].projections) {
      if (!model_.sequences().channels[p.channel].lonely())
        out.push_back({p.channel, {p.shared, p.own}});
    }
    return out;
  }

  // All as usual may diverge already. If not, one rank in another condition is enough: the usual
  // options agree everywhere, and some option of some rank does not agree with them.
  void find_divergence(const Situation& situation) {
    const std::vector<ProductOption> usual = usual_options(model_, situation);
    if (usual.empty()) {
      say("nothing was recorded for some rank in step " + std::to_string(situation.step));
      return;
    }
    const std::vector<std::uint32_t> sequences = sequences_of(situation, usual);
    if (const auto channels = model_.disagreeing(sequences); !channels.empty()) {
      Failure failure{situation, usual, minority(channels.front(), sequences), 0, std::nullopt};
      failure.cost = 4 * failure.differing.size();
      return keep(std::move(failure));
    }
    for (std::int32_t r = 0; r < model_.ranks(); ++r) {
      const auto i = static_cast<std::size_t>(r);
      const auto here = shared_part(sequences[i]);
      for (const ProductOption& option : model_.situations().options(situation, r)) {
        const std::uint32_t other = model_.recorded(situation, r, option).sequence;
        if (other == kNothing || shared_part(other) == here) continue;
        Failure failure{situation, usual, {Rank(r)}, 4, std::nullopt};
        failure.cost += option.history != usual[i].history ? 1U : 0U;
        failure.cost += option.condition != usual[i].condition ? 1U : 0U;
        failure.options[i] = option;
        keep(std::move(failure));
      }
    }
  }

  // The members that do not do what most of them do; of equal parties, not that of the lowest rank.
  std::vector<Rank> minority(std::uint32_t channel,
                             const std::vector<std::uint32_t>& sequences) const {
    const ChannelParties parties = parties_on(model_, channel, sequences);
    std::vector<Rank> out;
    for (std::size_t p = 0; p < parties.size(); ++p) {
      if (p != parties_reference(parties))
        out.insert(out.end(), parties[p].ranks.begin(), parties[p].ranks.end());
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  void find_deadlock(const Situation& situation, const Evaluation& evaluation, bool device) {
    const MeetingOrder order =
        order_meetings(model_.sequences(), ProductModel::distinct(evaluation), device);
    if (!device) out_.meetings += order.order.size();
    if (order.held.empty()) return;
    const CircleSearch search =
        find_circle(model_.sequences(), evaluation.choices, order.held, device);
    if (!search.circle) {
      out_.one_order = false;
      if (!search.complete)
        say("ranks may come to meetings in opposite orders, and whether some assignment closes a "
            "circle was not found out: there are too many ways");
      return;
    }
    const std::vector<ProductOption> usual = usual_options(model_, situation);
    if (usual.empty()) return;
    Failure failure{situation, usual, {}, 4 * search.circle->links.size(), search.circle};
    for (const Circle::Link& link : search.circle->links) {
      const auto i = static_cast<std::size_t>(link.rank);
      failure.differing.emplace_back(link.rank);
      if (model_.recorded(situation, link.rank, usual[i]).sequence == link.sequence) continue;
      for (const ProductOption& option : model_.situations().options(situation, link.rank)) {
        if (model_.recorded(situation, link.rank, option).sequence != link.sequence) continue;
        failure.options[i] = option;
        ++failure.cost;
        break;
      }
    }
    std::sort(failure.differing.begin(), failure.differing.end());
    keep(std::move(failure));
  }

  // The earliest exception that an assignment can lead to.
  std::optional<Raise> first_raise() {
    std::optional<Raise> out;
    for (std::uint32_t h = 0; h < model_.derivation().runs.size(); ++h) {
      for (std::int32_t r = 0; r < model_.ranks(); ++r) {
        const auto& raise = model_.sequences().raise(h, r);
        if (!raise || (out && out->step <= raise->step)) continue;
        if (auto assignment = follow_trace(model_, h, r))
          out = Raise{h, r, raise->step, std::move(*assignment)};
        else
          note_hidden_raise(h, r, *raise);
      }
    }
    return out;
  }

  // An exception that no allowed assignment reproduces as it was recorded may still come about in
  // another way: after the same condition in the step before, or under the same one.
  void note_hidden_raise(std::uint32_t history, std::int32_t rank, const RecordedRaise& raise) {
    const std::uint32_t first = model_.spec().histories[history].first;
    bool may = false;
    for (std::uint32_t m = 0; m < model_.situations().meets().size(); ++m) {
      const auto mine = model_.situations().conditions(m, rank, 0);
      may = may || std::binary_search(mine.begin(), mine.end(), first);
    }
    if (!may) return;
    say("rank " + std::to_string(rank) + " raised an exception in step " +
        std::to_string(raise.step) + " of " + printable(model_.spec().histories[history].folder) +
        ", and whether it can in an allowed assignment is not known");
  }

  // A condition that was seen once may do something else the second time.
  void note_single_recordings() {
    const ProductSpec& spec = model_.spec();
    std::set<std::uint32_t> used;
    for (const Situation& situation : model_.situations().all()) {
      if (situation.kind != Situation::Kind::later) continue;
      for (std::int32_t r = 0; r < model_.ranks(); ++r) {
        for (const std::uint32_t c :
             model_.situations().conditions(situation.meet, r, situation.step))
          used.insert(c);
      }
    }
    for (const std::uint32_t c : used) {
      if (std::count(spec.steps.begin(), spec.steps.end(), c) >= 2) continue;
      say("\"" + printable(spec.conditions[c].name) +
          "\" comes less than twice in \"steps\", so that nothing shows that a step under it is "
          "always the same");
    }
  }

  ProductDecision conclude() {
    Counterexample example;
    const Failure& failure = *failed_;
    example.where = failure.situation.kind == Situation::Kind::start ? Counterexample::Where::start
                    : failure.situation.kind == Situation::Kind::end ? Counterexample::Where::end
                                                                     : Counterexample::Where::step;
    example.step = std::max<std::int64_t>(failure.situation.step, 0);
    example.assignment = lead_to(model_, failure.situation, failure.options);
    example.differing = failure.differing;
    const std::vector<std::uint32_t> sequences = sequences_of(failure.situation, failure.options);
    if (failure.circle) {
      describe_circle(model_, *failure.circle, example);
    } else {
      describe_divergence(model_, sequences, example);
    }
    return proven(std::move(example),
                  failure.circle ? ProductVerdict::may_deadlock : ProductVerdict::diverges);
  }

  ProductDecision ends_with(const Raise& raise) {
    Counterexample example;
    example.step = raise.step;
    example.assignment = raise.assignment;
    example.differing = {Rank(raise.rank)};
    const auto& recorded = model_.sequences().raise(raise.history, raise.rank);
    example.reason.push_back("rank " + std::to_string(raise.rank) +
                             " raises an exception in step " + std::to_string(raise.step) + ": " +
                             printable(recorded->what));
    return proven(std::move(example), ProductVerdict::raises);
  }

  // Ranks that do not agree on who is in a group cannot agree on anything there.
  ProductDecision disputed() {
    Counterexample example;
    const Situation start = model_.situations().all().front();
    example.where = Counterexample::Where::start;
    example.assignment = lead_to(model_, start, usual_options(model_, start));
    for (const std::string& name : model_.sequences().disputed_groups)
      example.reason.push_back("ranks give group \"" + printable(name) + "\" different members");
    return proven(std::move(example), ProductVerdict::diverges);
  }

  ProductDecision proven(Counterexample example, ProductVerdict verdict) {
    out_.why.clear();
    if (example.assignment.steps.empty()) {
      say("a difference was found, but no run that leads to it was recorded");
      for (const std::string& reason : example.reason) say(reason);
      return std::move(out_);
    }
    example.run = compose(model_, example.assignment);
    example.report = verify(example.run);
    if (!shows_divergence(example.report)) {
      say("the sequences differ, but verify() finds nothing wrong with a run of them: the traces "
          "may not record the same things of all calls");
      for (const std::string& reason : example.reason) say(reason);
      return std::move(out_);
    }
    out_.verdict = verdict;
    out_.counterexample = std::move(example);
    return std::move(out_);
  }

  const ProductModel& model_;
  ProductDecision out_;
  std::optional<Failure> failed_;
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

}  // namespace lockstep
