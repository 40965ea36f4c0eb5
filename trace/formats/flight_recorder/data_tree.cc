#include "trace/formats/flight_recorder/data_tree.h"

#include <algorithm>
#include <utility>

namespace lockstep::trace {

DataTree::Value DataTree::copied_string(std::string s) {
  own_strings_.push_back(std::move(s));
  return string(own_strings_.back());
}

void DataTree::add_more(Container& c, std::span<const Value> items) {
  const std::size_t size = c.size + items.size();
  if (size > c.capacity) {
    // A container at the end of the array grows in place. Any other one moves to the end, and
    // doubles, so that items cost O(1) on average; its old space is lost.
    const bool at_end = c.begin + c.capacity == values_.size();
    const std::size_t capacity = std::max(size, std::size_t{c.size} * 2);
    if (at_end) {
      values_.add(capacity - c.capacity);
    } else {
      values_.add(capacity);
      const std::size_t begin = values_.size() - capacity;
      std::copy_n(values_.data() + c.begin, c.size, values_.data() + begin);
      c.begin = begin;
    }
    c.capacity = static_cast<std::uint32_t>(capacity);
  }
  std::copy(items.begin(), items.end(), values_.data() + c.begin + c.size);
  c.size = static_cast<std::uint32_t>(size);
}

const DataTree::Value* DataTree::find(const Value& dict, std::string_view key) const {
  // Backwards: of a repeated key the last one counts, as in Python.
  const std::span<const Value> all = pairs(dict);
  for (std::size_t i = all.size(); i >= 2; i -= 2) {
    if (text(all[i - 2]) == key) return &all[i - 1];
  }
  return nullptr;
}

}  // namespace lockstep::trace
