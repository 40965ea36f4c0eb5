// Sequences of calls, and the edits by which a deviating one agrees with the reference's again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "trace/run.h"
#include "verify/streams/agreement.h"
#include "verify/streams/streams.h"

namespace lockstep::verify {

// Sequence: one class's calls in one group, continued beyond its end by what followed the last time
// the same calls came by. Training repeats itself: what a rank would have called next, had it not
// hung, is what it called then.

// What is compared of a call.
struct Token {
  trace::SignatureId signature;
  trace::NameListId what;
  std::int32_t step = trace::kNone;
};

class Sequence {
 public:
  static constexpr std::size_t kHistory = 4096;  // calls looked back, or far ahead
  static constexpr std::size_t kSuffix = 64;     // calls by which two places are compared
  static constexpr std::size_t kNear = 16;       // calls between two that belong together

  // Keeps references to all three.
  Sequence(const trace::Run& run, const Stream& stream, Agreement& agreement)
      : calls_(run.ranks[stream.rank_index].calls), stream_(stream), agreement_(agreement) {}

  std::uint32_t rank_index() const { return stream_.rank_index; }
  std::size_t size() const { return stream_.calls.size(); }
  Token token(std::size_t i) const {
    const trace::Call& c = call(i);
    return {c.signature, c.what, c.step};
  }

  // The call at i; beyond the end the call that is expected there.
  std::optional<Token> ahead(std::size_t i);

  // What the sequence's own past says should come at i; nothing where it has no such past.
  std::optional<Token> habit(std::size_t i);

  // Whether a call like this one comes before i.
  bool seen_before(std::size_t i, const Token& like);

  // Whether a call like this one comes after i.
  bool seen_after(std::size_t i, const Token& like);

  // How far behind a call like `first` one like `then` came, the last time that it came within a
  // few calls, before `end`.
  std::optional<std::size_t> distance_after(std::size_t end, const Token& first, const Token& then);

 private:
  const trace::Call& call(std::size_t i) const { return calls_[stream_.calls[i]]; }
  // By operation, size, parameters and source line.
  bool alike(std::size_t i, std::size_t j);
  // The call at i as it comes again so many rounds of `period` calls later; the rounds are those up
  // to `end`.
  Token repeated(std::size_t i, std::size_t rounds, std::size_t period, std::size_t end) const;
  // How many calls up to `last` look like those up to `last - back`.
  std::size_t suffix(std::size_t last, std::size_t back);
  // The distance to the earlier place whose calls look most like those up to `end`; 0: none.
  std::size_t find_repetition(std::size_t end);

  const std::vector<trace::Call>& calls_;
  const Stream& stream_;
  Agreement& agreement_;
  std::optional<std::size_t> repetition_;  // behind the end, once asked for
};

// The first edit of the cheapest script that turns one sequence into another.
//
// Sequences are given by their lengths and by questions about places, so that this knows nothing of
// calls. Costs: one for each element left out or added, one for two neighbours swapped (both of
// which count as agreeing), and what the caller says for one element in the place of another. Among
// the cheapest scripts the one with most agreeing elements counts, then the one that begins with a
// replacement, a swap, an omission, an addition, in this order.
//
// Wagner and Fischer, "The String-to-String Correction Problem", JACM 1974, with the transposition
// of Lowrance and Wagner (1975). O(reference · deviant) time and space: callers bound the lengths.

struct EditProblem {
  std::size_t reference = 0;  // elements of the reference that are known, or expected, from here on
  std::size_t deviant = 0;    // elements of the deviant
  std::size_t seen = 0;       // how many of the reference's are there, and not just expected
  // How many of the reference's elements must be accounted for although the deviant has ended; 0
  // where the deviant was cut short and might have gone on.
  std::size_t owed = 0;
  // Whether the deviant's elements behind the reference's end are additions; false where the
  // reference's further way is just not known.
  bool reference_ends = false;
  std::function<bool(std::size_t, std::size_t)> same;  // reference i and deviant j agree
  std::function<std::size_t(std::size_t, std::size_t)> replacement;  // cost of j in the place of i
};

struct FirstEdit {
  enum class Kind : std::uint8_t { replaced, swapped, missing, extra } kind = Kind::replaced;
  std::size_t count = 1;      // elements left out or added in a row
  std::size_t cost = 0;       // of the whole script
  std::size_t agreement = 0;  // elements that agree in the whole script
};

// Requires that reference element 0 and deviant element 0 exist and do not agree.
FirstEdit first_edit(const EditProblem& problem);

// EditFinder: by which edit does a deviating sequence agree with the reference's again?
//
// The edit script decides where both sides' further way is seen, or expected
// from the last time the same calls came by. Where the deviant's stream stops in the very call, one
// call is all there is to judge by: if it is one that comes later, those before it were left out.

enum class EditKind : std::uint8_t {
  replaced,  // another operation, size, type, … than the reference
  missing,   // the deviant left out `count` calls
  extra,     // the deviant issued `count` calls more
  swapped,   // the deviant issued two calls the other way round
  identity,  // the same call with other parameters
};

struct Edit {
  EditKind kind = EditKind::replaced;
  std::size_t count = 1;
};

// Whether two calls may be one: they agree in form, carry the same parameters and, `with_step`,
// belong to the same step. What was not recorded agrees with everything.
bool same_call(Agreement& agreement, const Token& a, const Token& b, bool with_step);

class EditFinder {
 public:
  // `with_step`: steps are comparable between the ranks. Keeps references to the other two.
  EditFinder(const trace::Tables& tables, Agreement& agreement, bool with_step)
      : tables_(tables), agreement_(agreement), with_step_(with_step) {}

  // A place in a sequence; `ended`: the rank's program finished, so that no more will come.
  struct Side {
    Sequence& sequence;
    std::size_t next = 0;
    bool ended = false;

    Token token() const { return sequence.token(next); }
    std::size_t left() const { return sequence.size() - next; }
  };

  // Requires that both sides have a call at their place, and that these are not the same call.
  // O(64 * 64), less where the same pair of calls was explained before.
  Edit find(Side reference, Side deviant);

 private:
  bool match(const Token& a, const Token& b) { return same_call(agreement_, a, b, with_step_); }
  // Whether the call behind an edit agrees, so that the same edit may be taken again.
  bool agrees_after(const Edit& edit, const Side& ref, const Side& dev);
  // The first edit of the cheapest script.
  Edit cheapest(const Side& ref, const Side& dev);
  // A whole branch of a large model may be left out: more calls than the script's window holds.
  std::optional<Edit> far_shift(const Side& ref, const Side& dev);
  // What one call in the place of another means.
  Edit refine(const Edit& replaced, const Side& ref, const Side& dev);
  // How many calls the reference issues (or would issue) before one like this.
  std::optional<std::size_t> calls_until(const Side& ref, const Token& like);
  std::size_t replacement_cost(const Token& a, const Token& b);
  bool only_step_differs(const Token& a, const Token& b);

  const trace::Tables& tables_;
  Agreement& agreement_;
  const bool with_step_;
  // The edit of a pair of calls seen before: a deviant often does the same in every step.
  std::map<std::tuple<trace::SignatureId, trace::NameListId, trace::SignatureId, trace::NameListId>,
           Edit>
      known_;
};

}  // namespace lockstep::verify
