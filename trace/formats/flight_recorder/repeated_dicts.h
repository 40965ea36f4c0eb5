// RepeatedDicts: each step of a job makes the same calls, so most entries of a dump have the bytes
// of an earlier one, except numbers and times. Such a dict is not read opcode by opcode: its bytes
// are compared, its integers replaced, and it shares all the rest with the earlier one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/formats/flight_recorder/data_tree.h"

namespace lockstep::trace {

class RepeatedDicts {
 public:
  // Makes its dicts in `tree`, which must outlive this.
  explicit RepeatedDicts(DataTree& tree) : tree_(tree) {}

  // If the pickle's `rest` begins with one of the dicts expected next, except the integers among
  // its values: takes it off `rest`, and returns the same dict with those integers. O(its bytes).
  std::optional<DataTree::Value> take(std::string_view& rest);

  // Tells which dict came instead of the expected ones: its bytes, from EMPTY_DICT to SETITEMS, and
  // what the pickle machine made of them. One is not expected again if its bytes do more than make
  // it (they memoize something), or are not all of what it takes. O(its bytes).
  void learn(std::string_view bytes, const DataTree::Value& dict);

  // Expects nothing any more: a number in the memo has got another meaning, so that equal bytes no
  // longer make equal dicts.
  void forget();

 private:
  static constexpr std::uint32_t kNobody = UINT32_MAX;

  // An integer's bytes, without the opcode, and its place in the dict: key, value, key, value, ….
  struct Hole {
    std::uint32_t begin, size, place;
  };
  struct Known {
    std::string_view bytes;
    std::vector<Hole> holes;
    std::vector<DataTree::Value> values;  // key, value, key, value, …
    // Those that came after it, the last one first. Two: rows of equal calls have a last one.
    std::array<std::uint32_t, 2> next = {kNobody, kNobody};
  };

  static std::vector<Hole> holes_in(std::string_view bytes, std::size_t places);
  static bool begins(std::string_view bytes, const Known& known);
  std::uint32_t number_of(Known known);

  DataTree& tree_;
  std::vector<Known> known_;
  std::unordered_multimap<std::size_t, std::uint32_t> by_hash_;  // of the bytes without the holes
  std::uint32_t last_ = kNobody;                                 // the dict before the next one
};

}  // namespace lockstep::trace
