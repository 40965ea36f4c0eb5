// Sequences of calls, and the edits that make a deviating sequence agree with the reference again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "trace/run.h"
#include "verify/streams/agreement.h"
#include "verify/streams/streams.h"

namespace lockstep::verify {

// The parts of a call that are compared.
struct Token {
  trace::SignatureId signature;
  trace::NameListId what;
  std::int32_t step = trace::kNone;
};

// The calls of one class in one group, continued beyond the end by prediction: training steps
// repeat, so a rank that hangs would have continued as it did the last time its recent calls
// occurred. After a b c | a b c | a, the sequence predicts b, c, a, b, …
class Sequence {
 public:
  // Calls searched backwards or ahead: a step of a large model has a few thousand.
  static constexpr std::size_t kHistory = 4096;
  // Calls compared to decide which earlier position looks most like the present one. Two layers may
  // look alike for a dozen calls; 64 reach beyond.
  static constexpr std::size_t kSuffix = 64;
  // Calls within which one is taken to follow another although their order varies.
  static constexpr std::size_t kNear = 16;

  // Keeps references to all three.
  Sequence(const trace::Run& run, const Stream& stream, Agreement& agreement)
      : calls_(run.ranks[stream.rank_index].calls), stream_(stream), agreement_(agreement) {}

  std::uint32_t rank_index() const { return stream_.rank_index; }
  std::size_t size() const { return stream_.calls.size(); }
  Token token(std::size_t i) const {
    const trace::Call& c = call(i);
    return {c.signature, c.what, c.step};
  }

  // The call at i; beyond the end the predicted one; nothing where the past does not repeat.
  // O(kHistory · kSuffix) on the first call beyond the end, O(1) afterwards.
  std::optional<Token> ahead(std::size_t i);

  // How many calls recur beyond the end, apart from their steps; 0 where the past does not repeat.
  // O(kHistory · kSuffix) on the first call.
  std::size_t period();

  // The call that the sequence's own past predicts at i, recorded or not; nothing where the past
  // does not repeat. O(kHistory · kSuffix).
  std::optional<Token> habit(std::size_t i);

  // Whether a call like this one is among the kHistory calls before i.
  bool seen_before(std::size_t i, const Token& like);

  // Where the call at i was issued; 0: not recorded.
  trace::StringId location(std::size_t i) const { return call(i).at; }
  // Whether one of the kHistory calls before i was issued at that location.
  bool was_at(std::size_t i, trace::StringId location) const;

  // Whether a call like this one is among the kHistory calls after i.
  bool seen_after(std::size_t i, const Token& like);

  // Whether a call like this one, at i, is the first one of the stream again: a new round begins.
  bool starts_again(std::size_t i, const Token& like);

  // How many calls after one like `first` one like `then` followed, at the latest occurrence before
  // `end` where it followed within kNear calls.
  std::optional<std::size_t> distance_after(std::size_t end, const Token& first, const Token& then);

 private:
  const trace::Call& call(std::size_t i) const { return calls_[stream_.calls[i]]; }
  // Whether two calls agree in form, parameters and source location.
  bool alike(std::size_t i, std::size_t j);
  // The call at i as it recurs `rounds` periods later, each of `period` calls, with its step number
  // moved on accordingly. The last period before `end` gives the step's increment.
  Token repeated(std::size_t i, std::size_t rounds, std::size_t period, std::size_t end) const;
  // The number of calls, counted backwards from `last`, that look like those before `last - back`.
  std::size_t suffix(std::size_t last, std::size_t back);
  // The distance back to the earlier index whose preceding calls look most like those before `end`;
  // 0: none.
  std::size_t find_repetition(std::size_t end);

  const std::vector<trace::Call>& calls_;
  const Stream& stream_;
  Agreement& agreement_;
  std::optional<std::size_t> period_;  // beyond the end; computed on first use
};

// The first edit of the cheapest script that turns one sequence into another.
//
// Sequences are given by their lengths and what each pair of indexes costs, so this knows nothing
// of calls. Costs: 1 for each element left out or added, 1 for two neighbours swapped (both count
// as agreeing), and the caller's cost for a replacement. Among the cheapest scripts, the one with
// the most agreeing elements wins; then the one that begins with a replacement, a swap, an
// omission, an addition, in this order. A swap that another change follows gives way to a single
// row of additions or omissions that costs no more and explains all.
//
// Wagner and Fischer, "The String-to-String Correction Problem", JACM 1974, with the transposition
// of Lowrance and Wagner (1975). O(reference · deviant) time and space: callers bound the lengths.

struct EditProblem {
  std::size_t reference = 0;  // elements of the reference from here on, recorded or predicted
  std::size_t deviant = 0;    // elements of the deviant
  std::size_t seen = 0;       // how many of the reference's elements were recorded
  // How many of the reference's elements count as left out where the deviant has ended; 0 where the
  // deviant was cut short and might have gone on.
  std::size_t owed = 0;
  // Whether the deviant's elements after the reference's end are additions. False where it is
  // unknown how the reference continues: they cost nothing.
  bool reference_ends = false;
  // For each pair (i of the reference, j of the deviant), i first: 0 where they agree, else what it
  // costs to replace i by j, 1 or more.
  std::vector<std::uint8_t> costs;

  bool same(std::size_t i, std::size_t j) const { return costs[i * deviant + j] == 0; }
  // Sets `costs` by comparing each pair once; requires that the lengths are set.
  template <typename Compare>
  void compare_all(Compare&& cost) {
    costs.resize(reference * deviant);
    for (std::size_t i = 0; i < reference; ++i)
      for (std::size_t j = 0; j < deviant; ++j) costs[i * deviant + j] = cost(i, j);
  }
};

struct FirstEdit {
  enum class Kind : std::uint8_t { replaced, swapped, missing, extra } kind = Kind::replaced;
  std::size_t count = 1;      // elements left out or added in a row
  std::size_t cost = 0;       // of the whole script
  std::size_t agreement = 0;  // elements that agree in the whole script
};

// Requires that reference element 0 and deviant element 0 exist and do not agree.
FirstEdit first_edit(const EditProblem& problem);

// EditFinder: which edit makes a deviating sequence agree with the reference again?
//
// The edit script decides where the following calls of both sides are recorded or predicted. Where
// the deviant's stream stops at the differing call, that call is the only evidence: if the
// reference issues it later, the calls before it were left out.

enum class EditKind : std::uint8_t {
  replaced,  // a call that differs in operation, size, type, …
  missing,   // the deviant left out `count` calls
  extra,     // the deviant issued `count` additional calls
  swapped,   // the deviant issued `count` calls in another order, mostly two
  identity,  // the same call with other parameters
};

struct Edit {
  EditKind kind = EditKind::replaced;
  std::size_t count = 1;
};

// Whether two calls may belong to one collective: they agree in form, carry the same parameters
// and, with `with_step`, belong to the same step. What was not recorded agrees with everything.
bool same_call(Agreement& agreement, const Token& a, const Token& b, bool with_step);

// How many edits are still searched in a run. Where all are used up, so many calls differ that the
// ranks' programs have little in common, and a list of the differences helps nobody: then the first
// one of each group is enough. So a job of random calls costs what reading it does.
struct EditBudget {
  std::size_t left = 8192;

  bool is_spent() const { return left == 0; }
};

class EditFinder {
 public:
  // `with_step`: steps are comparable between the ranks. Keeps references to the other three.
  EditFinder(const trace::Tables& tables, Agreement& agreement, bool with_step, EditBudget& budget)
      : tables_(tables), agreement_(agreement), with_step_(with_step), budget_(budget) {}

  // A position in a sequence. `ended`: the rank's program finished, so no further calls follow.
  struct Side {
    Sequence& sequence;
    std::size_t next = 0;
    bool ended = false;

    Token token() const { return sequence.token(next); }
    std::size_t left() const { return sequence.size() - next; }
  };

  // Requires that both sides have a call at their position, and that the two do not match.
  // O(64 · 64), less where the same pair of calls was explained before. Each search is taken from
  // the budget, but none is refused.
  Edit find(Side reference, Side deviant);

 private:
  bool match(const Token& a, const Token& b) { return same_call(agreement_, a, b, with_step_); }
  // Whether the calls after the edit agree, so that a remembered edit applies here too.
  bool agrees_after(const Edit& edit, const Side& ref, const Side& dev);
  // Where the two calls are of different steps: one side has left the step in which the other still
  // calls. That is no matter of costs, which would take the few calls of a rank that hangs early in
  // its next step for additions, where the others still had many to make in theirs.
  std::optional<Edit> across_steps(const Side& ref, const Side& dev) const;
  // Whether the deviant issued the reference's next calls, three or more, in an order of its own,
  // as one that follows a set or a dictionary. Not where a row of calls only came earlier or later
  // than the rest: as well the deviant may have left them out in this round. O(64 · 64).
  std::optional<Edit> in_another_order(const Side& ref, const Side& dev);
  // The first edit of the cheapest script.
  Edit cheapest(const Side& ref, const Side& dev);
  // An omission that the script does not see, or an addition of more calls than its window holds: a
  // whole branch of a large model.
  std::optional<Edit> far_shift(const Side& ref, const Side& dev);
  // Interprets a replacement: a wrong form, other parameters, an omission or an addition.
  Edit refine(const Edit& replaced, const Side& ref, const Side& dev);
  // Whether the two calls come from different lines of the program; false where one is unknown.
  static bool is_at_another_line(const Side& ref, const Side& dev);
  // Whether the deviant's call comes from a line of the program that neither side issued a call
  // from before, and it knows the line of the reference's call.
  static bool is_at_new_line(const Side& ref, const Side& dev);
  // Whether the deviant hangs in such a call, of the same operation: it came to a call of its own.
  bool comes_from_a_new_line(const Side& ref, const Side& dev);
  // 0 where the two calls match; else what it costs to replace one by the other.
  std::uint8_t cost_instead(const Token& a, const Token& b);
  // How many calls the reference issues, or is predicted to issue, before one like this.
  std::optional<std::size_t> calls_until(const Side& ref, const Token& like);

  const trace::Tables& tables_;
  Agreement& agreement_;
  const bool with_step_;
  EditBudget& budget_;
  // Edits by the pair of calls that they explained: a deviant often does the same in every step.
  std::map<std::tuple<trace::SignatureId, trace::NameListId, trace::SignatureId, trace::NameListId>,
           Edit>
      known_;
};

}  // namespace lockstep::verify
