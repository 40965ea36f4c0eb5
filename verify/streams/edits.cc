#include "verify/streams/edits.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

#include "base/check.h"

namespace lockstep::verify {

namespace {

using EditScriptKind = FirstEdit::Kind;

enum class Step : std::uint8_t { end, agree, replace, swap, miss, add };

// What a script costs, and how many elements agree in it, as one number: of two scripts, the lower
// one is better.
class Score {
 public:
  constexpr Score() = default;  // worse than every script
  constexpr explicit Score(std::size_t cost) : value_((std::uint64_t{cost} << 32U) | kNoneAgrees) {}
  constexpr Score plus(std::uint64_t cost, std::uint64_t agreement) const {
    Score out = *this;
    out.value_ += (cost << 32U) - agreement;
    return out;
  }
  std::size_t cost() const { return value_ >> 32U; }
  std::size_t agreement() const { return kNoneAgrees - static_cast<std::uint32_t>(value_); }
  friend bool operator<(Score a, Score b) { return a.value_ < b.value_; }

 private:
  static constexpr std::uint32_t kNoneAgrees = std::numeric_limits<std::uint32_t>::max();
  std::uint64_t value_ = std::numeric_limits<std::uint64_t>::max();
};

// The table of the dynamic program. Filled from the ends backwards, so that step(0, 0) is the first
// edit; the usual forward direction would need a walk back. It keeps three rows of scores.
class Table {
 public:
  explicit Table(const EditProblem& problem)
      : problem_(problem),
        width_(problem.deviant + 1),
        steps_((problem.reference + 1) * width_),
        row_(width_),
        below_(width_),
        second_below_(width_) {
    for (std::size_t i = problem.reference + 1; i-- > 0;) {
      second_below_.swap(below_);
      below_.swap(row_);
      fill_row(i);
    }
  }

  Score score() const { return row_[0]; }
  Step step(std::size_t i, std::size_t j) const { return steps_[i * width_ + j]; }

 private:
  // The cheapest scripts from reference element i and each deviant element to the end.
  void fill_row(std::size_t i) {
    // One side is used up: the rest of the other costs something only where the side really ended,
    // and was not just cut off.
    row_[problem_.deviant] = Score(i < problem_.owed ? problem_.owed - i : 0);
    if (i == problem_.reference) {
      for (std::size_t j = 0; j < problem_.deviant; ++j)
        row_[j] = Score(problem_.reference_ends ? problem_.deviant - j : 0);
      return;
    }
    const std::uint8_t* const costs = &problem_.costs[i * problem_.deviant];
    for (std::size_t j = problem_.deviant; j-- > 0;) {
      Score best = below_[j + 1].plus(costs[j], costs[j] == 0 ? 1 : 0);
      Step step = costs[j] == 0 ? Step::agree : Step::replace;
      // Strictly better only: of equal scripts the one considered first stays, which gives the
      // order replacement, swap, omission, addition.
      const auto consider = [&](Score score, Step other) {
        if (!(score < best)) return;
        best = score;
        step = other;
      };
      // Both calls of the reference must have been recorded: a swap with a predicted call would
      // blame the deviant for an order that nobody saw.
      if (j + 1 < problem_.deviant && costs[j + 1] == 0 && i + 1 < problem_.seen &&
          problem_.same(i + 1, j))
        consider(second_below_[j + 2].plus(1, 2), Step::swap);
      consider(below_[j].plus(1, 0), Step::miss);
      consider(row_[j + 1].plus(1, 0), Step::add);
      row_[j] = best;
      steps_[i * width_ + j] = step;
    }
  }

  const EditProblem& problem_;
  const std::size_t width_;
  std::vector<Step> steps_;
  std::vector<Score> row_, below_, second_below_;  // of reference element i, i + 1, i + 2
};

// Whether `count` elements in a row, added by the deviant or left out by it, explain all that is
// recorded: the rest agrees, and there is some.
bool is_one_row(const EditProblem& problem, std::size_t count, bool added) {
  std::size_t i = added ? 0 : count;
  std::size_t j = added ? count : 0;
  if (i >= problem.seen || j >= problem.deviant) return false;
  while (i < problem.seen && j < problem.deviant)
    if (!problem.same(i++, j++)) return false;
  return true;
}

// The table counts the two calls of a swap as agreeing, so it prefers one with another change right
// after it to a row of additions at the same cost. But that is one change instead of two: of "abb"
// for "bars", "ab" was added, rather than "ba" swapped and "b" put in the place of "r".
std::optional<FirstEdit> row_instead_of_swap(const EditProblem& problem, std::size_t cost) {
  for (std::size_t count = 2; count <= cost; ++count) {
    if (is_one_row(problem, count, /*added=*/true))
      return FirstEdit{EditScriptKind::extra, count, count, problem.deviant - count};
    if (is_one_row(problem, count, /*added=*/false))
      return FirstEdit{EditScriptKind::missing, count, count,
                       std::min(problem.seen - count, problem.deviant)};
  }
  return std::nullopt;
}

}  // namespace

FirstEdit first_edit(const EditProblem& problem) {
  LOCKSTEP_CHECK(problem.reference > 0 && problem.deviant > 0, "an edit of nothing");
  LOCKSTEP_CHECK(problem.seen <= problem.reference, "more seen than there is");
  LOCKSTEP_CHECK(problem.costs.size() == problem.reference * problem.deviant, "pairs without cost");
  const Table table(problem);
  FirstEdit out;
  out.cost = table.score().cost();
  out.agreement = table.score().agreement();
  // An omission or addition takes along those that follow directly: three calls left out in a row
  // are one edit of count 3.
  switch (table.step(0, 0)) {
    case Step::swap:
      if (const auto row = row_instead_of_swap(problem, out.cost)) return *row;
      out.kind = EditScriptKind::swapped;
      out.count = 2;
      break;
    case Step::miss:
      out.kind = EditScriptKind::missing;
      while (out.count < problem.reference && table.step(out.count, 0) == Step::miss) {
        ++out.count;
      }
      break;
    case Step::add:
      out.kind = EditScriptKind::extra;
      while (out.count < problem.deviant && table.step(0, out.count) == Step::add) {
        ++out.count;
      }
      break;
    case Step::agree:
    case Step::replace:
    case Step::end:
      break;
  }
  return out;
}

namespace {

// Calls of each side that an edit script covers. 64 x 64 cells are a few microseconds; longer
// omissions are found by far_shift().
constexpr std::size_t kWindow = 64;

bool is_same_step(const Token& a, const Token& b, bool with_step) {
  return !with_step || a.step == b.step || a.step == trace::kNone || b.step == trace::kNone;
}

}  // namespace

bool same_call(Agreement& agreement, const Token& a, const Token& b, bool with_step) {
  if (!agreement.agree(a.signature, b.signature)) return false;
  if (a.what != b.what && a.what.value != 0 && b.what.value != 0) return false;
  return is_same_step(a, b, with_step);
}

Edit EditFinder::find(Side ref, Side dev) {
  const Token expected = ref.token();
  const Token got = dev.token();
  const auto key = std::tuple(expected.signature, expected.what, got.signature, got.what);
  if (const auto known = known_.find(key); known != known_.end()) {
    if (agrees_after(known->second, ref, dev)) return known->second;
  }
  if (const auto edit = across_steps(ref, dev)) return *edit;
  if (const auto edit = in_another_order(ref, dev)) return *edit;
  Edit edit = cheapest(ref, dev);
  if (edit.kind == EditKind::replaced) edit = refine(edit, ref, dev);
  // The same operation on the same parameters: FSDP gathers them and later reduces their gradients.
  const bool same_identity =
      expected.what == got.what && got.what.value != 0 &&
      tables_.signatures[expected.signature].op == tables_.signatures[got.signature].op;
  const bool stops_there = dev.left() == 1 && !dev.ended;
  // From a line that made none before, it is not one that the reference makes from another line.
  const bool is_new = (edit.kind == EditKind::replaced && is_at_new_line(ref, dev)) ||
                      (edit.kind == EditKind::extra && comes_from_a_new_line(ref, dev));
  if (edit.kind != EditKind::missing && stops_there && !same_identity && !is_new) {
    // The deviant hangs in this one call, so the script had nothing to align. If the reference
    // issues the call later, the calls before it were left out: reference a b c d, deviant hangs in
    // c, so a and b are missing.
    if (const auto n = calls_until(ref, got)) edit = {EditKind::missing, *n};
  }
  known_[key] = edit;
  return edit;
}

std::optional<Edit> EditFinder::across_steps(const Side& ref, const Side& dev) const {
  const std::int32_t expected = ref.token().step;
  const std::int32_t got = dev.token().step;
  if (!with_step_ || expected == trace::kNone || got == trace::kNone || expected == got)
    return std::nullopt;
  const auto calls_before = [](const Side& side, std::int32_t step) {
    std::size_t n = 1;
    while (n < side.left() && side.sequence.token(side.next + n).step != trace::kNone &&
           side.sequence.token(side.next + n).step < step)
      ++n;
    return n;
  };
  if (expected < got) return Edit{EditKind::missing, calls_before(ref, got)};
  return Edit{EditKind::extra, calls_before(dev, expected)};
}

std::optional<Edit> EditFinder::in_another_order(const Side& ref, const Side& dev) {
  const std::size_t most = std::min({kWindow, ref.left(), dev.left()});
  const auto of_reference = [&](std::size_t i) { return ref.sequence.token(ref.next + i); };
  std::vector<std::size_t> is_call;  // which of the reference's calls each of the deviant's is
  std::vector<bool> used(most, false);
  std::size_t end = 0;  // beyond all of these
  do {
    const std::size_t n = is_call.size();
    if (n == most) return std::nullopt;
    std::size_t i = 0;
    while (i < most && (used[i] || !match(of_reference(i), dev.sequence.token(dev.next + n)))) ++i;
    if (i == most) return std::nullopt;
    used[i] = true;
    is_call.push_back(i);
    end = std::max(end, i + 1);
  } while (end > is_call.size());
  // Both begin with the same calls. Two are swapped, and a row that only moved is a rotation.
  bool rotated = true;
  for (std::size_t i = 1; i < end; ++i)
    rotated = rotated && is_call[i] == (is_call[i - 1] + 1) % end;
  if (end < 3 || rotated) return std::nullopt;
  // Where some are alike, which is which stays open.
  for (std::size_t i = 0; i < end; ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (match(of_reference(i), of_reference(j))) return std::nullopt;
  return Edit{EditKind::swapped, end};
}

std::optional<std::size_t> EditFinder::calls_until(const Side& ref, const Token& like) {
  const Token here = ref.token();
  for (std::size_t n = 1; n <= Sequence::kHistory; ++n) {
    const auto there = ref.sequence.ahead(ref.next + n);
    if (!there) break;
    // Only recorded calls of the reference can be reported as left out.
    if (match(*there, like)) return std::min(n, ref.left());
  }
  // The prediction fails where the order varies from step to step (hooks that fire as gradients
  // become ready). If such a call came shortly after one like `here` before, one call was left out.
  return ref.sequence.distance_after(ref.next, here, like) ? std::optional<std::size_t>(1)
                                                           : std::nullopt;
}

bool EditFinder::agrees_after(const Edit& edit, const Side& ref, const Side& dev) {
  const bool skips = edit.kind == EditKind::missing;
  const bool adds = edit.kind == EditKind::extra;
  // Whether a replacement or swap applies again depends on more than the next call: search again.
  if (!skips && !adds) return false;
  const auto expected = ref.sequence.ahead(ref.next + (skips ? edit.count : 0));
  const std::size_t next = dev.next + (adds ? edit.count : 0);
  return expected && next < dev.sequence.size() && match(*expected, dev.sequence.token(next));
}

Edit EditFinder::cheapest(const Side& ref, const Side& dev) {
  if (budget_.left > 0) --budget_.left;
  EditProblem problem;
  std::vector<Token> expected;
  while (expected.size() < kWindow) {
    const auto next = ref.sequence.ahead(ref.next + expected.size());
    if (!next) break;
    expected.push_back(*next);
  }
  problem.reference = expected.size();
  problem.deviant = std::min(kWindow, dev.left());
  problem.seen = std::min(problem.reference, ref.left());
  // A program finished within the window: what the deviant does not answer of the reference's
  // recorded calls is missing, and what it calls after the reference's end is added. Beyond the
  // window the ends are not seen, and cost nothing.
  if (dev.left() <= kWindow && ref.left() <= kWindow) {
    if (dev.ended) problem.owed = ref.left();
    problem.reference_ends = ref.ended;
    if (ref.ended) problem.reference = ref.left();
  }
  std::vector<Token> got;
  for (std::size_t j = 0; j < problem.deviant; ++j) got.push_back(dev.sequence.token(dev.next + j));
  problem.compare_all(
      [&](std::size_t i, std::size_t j) { return cost_instead(expected[i], got[j]); });
  const FirstEdit first = first_edit(problem);
  // Nothing in the window agrees: the sequences may be shifted by more calls than it holds, or by
  // more than there are calls of the deviant, so that it is cheaper to replace them all.
  if (first.agreement == 0 && problem.deviant > 1) {
    if (const auto far = far_shift(ref, dev)) return *far;
  }
  switch (first.kind) {
    case FirstEdit::Kind::swapped:
      return {EditKind::swapped, 2};
    case FirstEdit::Kind::missing:
      return {EditKind::missing, std::min(first.count, ref.left())};
    case FirstEdit::Kind::extra:
      return {EditKind::extra, first.count};
    case FirstEdit::Kind::replaced:
      break;
  }
  return {EditKind::replaced, 1};
}

std::optional<Edit> EditFinder::far_shift(const Side& ref, const Side& dev) {
  // Two consecutive calls must match, because a single one (a barrier) recurs by chance.
  const Token got = dev.token();
  const Token then = dev.sequence.token(dev.next + 1);
  // Beyond the recorded calls the same ones recur, in other steps: one period shows them all.
  bool is_any_alike = false;
  for (std::size_t n = 1; n <= Sequence::kHistory; ++n) {
    const auto there = ref.sequence.ahead(ref.next + n);
    if (!there || (!is_any_alike && n >= ref.left() + ref.sequence.period())) break;
    if (!same_call(agreement_, *there, got, /*with_step=*/false)) continue;
    is_any_alike = true;
    if (!match(*there, got)) continue;
    const auto second = ref.sequence.ahead(ref.next + n + 1);
    // Only recorded calls of the reference can be reported as left out.
    if (second && match(*second, then)) return Edit{EditKind::missing, std::min(n, ref.left())};
  }
  const Token expected = ref.token();
  const auto second = ref.sequence.ahead(ref.next + 1);
  if (!second) return std::nullopt;
  for (std::size_t n = kWindow; n <= Sequence::kHistory && n + 1 < dev.left(); ++n) {
    if (match(expected, dev.sequence.token(dev.next + n)) &&
        match(*second, dev.sequence.token(dev.next + n + 1))) {
      return Edit{EditKind::extra, n};
    }
  }
  return std::nullopt;
}

// One call instead of another. With the same parameters, its form is wrong. With other parameters,
// it is an identity mismatch if the deviant went on; if the deviant's stream ends there, the
// deviant left out the reference's call or issued one too many.
Edit EditFinder::refine(const Edit& replaced, const Side& ref, const Side& dev) {
  const Token expected = ref.token();
  const Token got = dev.token();
  // The same call of a later step: the one of this step was left out.
  if (same_call(agreement_, expected, got, /*with_step=*/false)) return {EditKind::missing, 1};
  const bool unnamed = expected.what.value == 0 || got.what.value == 0;
  if (unnamed && comes_from_a_new_line(ref, dev)) return {EditKind::extra, 1};
  // Where one hangs there, gathers from different lines are those of two parts of the model, and
  // not one in two sizes. A reduction from another line may be one too many: a metric.
  const bool one_stops = (dev.left() == 1 && !dev.ended) || (ref.left() == 1 && !ref.ended);
  const trace::Op op = tables_.signatures[got.signature].op;
  const bool gathers = op == trace::Op::all_gather || op == trace::Op::all_gather_into_tensor;
  if (unnamed && one_stops && gathers && is_at_another_line(ref, dev) &&
      agreement_.differences(expected.signature, got.signature) == kDifferentSize)
    return {EditKind::missing, 1};
  if (expected.what == got.what || unnamed) return replaced;
  const bool alike = agreement_.agree(expected.signature, got.signature);
  const bool goes_on = dev.left() > 1;
  if (goes_on || dev.ended) {
    return {alike ? EditKind::identity : EditKind::replaced, 1};
  }
  // The deviant knows the expected call from earlier, and nobody issued `got` before: it is new, so
  // it is more likely an addition than a sign of an omission.
  if (dev.sequence.seen_before(dev.next, expected) && !dev.sequence.seen_before(dev.next, got) &&
      !ref.sequence.seen_before(ref.next, got)) {
    return {EditKind::extra, 1};
  }
  const bool same_operation =
      tables_.signatures[expected.signature].op == tables_.signatures[got.signature].op;
  return same_operation ? Edit{EditKind::missing, 1} : replaced;
}

bool EditFinder::is_at_another_line(const Side& ref, const Side& dev) {
  const trace::StringId expected = ref.sequence.location(ref.next);
  const trace::StringId got = dev.sequence.location(dev.next);
  return expected.value != 0 && got.value != 0 && expected != got;
}

bool EditFinder::is_at_new_line(const Side& ref, const Side& dev) {
  const trace::StringId expected = ref.sequence.location(ref.next);
  const trace::StringId got = dev.sequence.location(dev.next);
  return is_at_another_line(ref, dev) && dev.sequence.was_at(dev.next, expected) &&
         !dev.sequence.was_at(dev.next, got) && !ref.sequence.was_at(ref.next, got);
}

bool EditFinder::comes_from_a_new_line(const Side& ref, const Side& dev) {
  // Another operation may as well belong to a part of the program that all come to (a checkpoint).
  const bool same_operation =
      tables_.signatures[ref.token().signature].op == tables_.signatures[dev.token().signature].op;
  return is_at_new_line(ref, dev) && same_operation && dev.left() == 1 && !dev.ended;
}

// A plausible replacement has the same parameters in another form, or the same form with other
// parameters: cost 1. Both at once cost as much as an omission and an addition: 2. So do two calls
// without any such difference, which differ in their step alone.
std::uint8_t EditFinder::cost_instead(const Token& a, const Token& b) {
  const bool same_form = agreement_.agree(a.signature, b.signature);
  const bool same_identity = a.what == b.what || a.what.value == 0 || b.what.value == 0;
  if (same_form != same_identity) return 1;
  return same_form && is_same_step(a, b, with_step_) ? 0 : 2;
}

std::optional<Token> Sequence::ahead(std::size_t i) {
  if (i < size()) return token(i);
  if (period() == 0) return std::nullopt;
  // Go back by whole periods to a recorded index: with period 3 and size 7, index 7 is predicted
  // from 4, index 10 from 4 as well, two rounds back.
  const std::size_t rounds = (i - size()) / *period_ + 1;
  return repeated(i - rounds * *period_, rounds, *period_, size());
}

std::size_t Sequence::period() {
  if (!period_) period_ = find_repetition(size());
  return *period_;
}

Token Sequence::repeated(std::size_t i, std::size_t rounds, std::size_t period,
                         std::size_t end) const {
  Token t = token(i);
  const std::int32_t now = call(end - 1).step;
  const std::int32_t before = call(end - 1 - period).step;
  // The step grows in each round by as much as in the last one: by 1 if the period is a step, by 0
  // if it is a layer or micro-batch.
  if (t.step != trace::kNone && now != trace::kNone && before != trace::kNone) {
    t.step += static_cast<std::int32_t>(rounds) * (now - before);
  }
  return t;
}

std::optional<Token> Sequence::habit(std::size_t i) {
  const std::size_t period = find_repetition(i);
  if (period == 0) return std::nullopt;
  // Where several occurrences look as much alike, each counts: "a b a | a" is followed by b, by
  // the beginning of the round, or by another a, by its end.
  const std::size_t longest = suffix(i - 1, period);
  for (std::size_t back = period + 1; back < i && back <= kHistory && longest < kSuffix; ++back)
    if (suffix(i - 1, back) == longest && !alike(i - period, i - back)) return std::nullopt;
  return repeated(i - period, 1, period, i);
}

bool Sequence::seen_before(std::size_t i, const Token& like) {
  for (std::size_t back = 1; back <= i && back <= kHistory; ++back) {
    const Token t = token(i - back);
    if (t.what == like.what && agreement_.agree(t.signature, like.signature)) return true;
  }
  return false;
}

bool Sequence::was_at(std::size_t i, trace::StringId location) const {
  for (std::size_t back = 1; back <= i && back <= kHistory; ++back)
    if (call(i - back).at == location) return true;
  return false;
}

bool Sequence::seen_after(std::size_t i, const Token& like) {
  for (std::size_t j = i + 1; j < size() && j <= i + kHistory; ++j) {
    const Token t = token(j);
    if (t.what == like.what && agreement_.agree(t.signature, like.signature)) return true;
  }
  return false;
}

bool Sequence::starts_again(std::size_t i, const Token& like) {
  if (i == 0) return false;
  const Token first = token(0);
  return first.what == like.what && agreement_.agree(first.signature, like.signature);
}

bool Sequence::alike(std::size_t i, std::size_t j) {
  const bool same_location =
      call(i).at == call(j).at || call(i).at.value == 0 || call(j).at.value == 0;
  return same_location && call(i).what == call(j).what &&
         agreement_.agree(call(i).signature, call(j).signature);
}

std::size_t Sequence::suffix(std::size_t last, std::size_t back) {
  std::size_t length = 0;
  while (length < kSuffix && last >= back + length) {
    const std::size_t i = last - length;
    // The step number must advance at the same calls, too.
    const bool in_step =
        call(last).step - call(i).step == call(last - back).step - call(i - back).step;
    if (!in_step || !alike(i, i - back)) break;
    ++length;
  }
  return length;
}

std::size_t Sequence::find_repetition(std::size_t end) {
  if (end < 2) return 0;
  const std::size_t last = end - 1;
  // The longest common suffix wins, and among equal ones the nearest: the latest step is the best
  // model of the present one. A full suffix ends the search.
  std::size_t best = 0;
  std::size_t longest = 0;
  for (std::size_t back = 1; back <= last && back <= kHistory && longest < kSuffix; ++back) {
    const std::size_t length = suffix(last, back);
    if (length <= longest) continue;
    longest = length;
    best = back;
  }
  return best;
}

std::optional<std::size_t> Sequence::distance_after(std::size_t end, const Token& first,
                                                    const Token& then) {
  // Without steps: these are calls of earlier steps.
  const auto is = [&](const Token& a, const Token& b) {
    return a.what == b.what && agreement_.agree(a.signature, b.signature);
  };
  for (std::size_t back = 1; back <= end && back <= kHistory; ++back) {
    const std::size_t position = end - back;
    if (!is(token(position), first)) continue;
    for (std::size_t n = 1; n <= kNear && position + n < end; ++n) {
      if (is(token(position + n), then)) return n;
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::verify
