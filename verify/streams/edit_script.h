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

namespace lockstep {

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

}  // namespace lockstep
