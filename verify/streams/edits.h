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
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <tuple>

#include "verify/streams/agreement.h"
#include "verify/streams/sequence.h"

namespace lockstep::verify {

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
