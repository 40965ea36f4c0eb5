// EditFinder: by which edit does a deviating sequence agree with the reference's again?
//
// The edit script (verify/edit_script.h) decides where both sides' further way is seen, or expected
// from the last time the same calls came by. Where the deviant's stream stops in the very call, one
// call is all there is to judge by: if it is one that comes later, those before it were left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "verify/streams/agreement.h"
#include "verify/streams/sequence.h"

namespace lockstep {

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
  EditFinder(const Tables& tables, Agreement& agreement, bool with_step)
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

  const Tables& tables_;
  Agreement& agreement_;
  const bool with_step_;
  // The edit of a pair of calls seen before: a deviant often does the same in every step.
  std::map<std::tuple<SignatureId, NameListId, SignatureId, NameListId>, Edit> known_;
};

}  // namespace lockstep
