#include "trace/formats/data_tree.h"

#include <algorithm>
#include <utility>

namespace lockstep {

DataTree::Value DataTree::boolean(bool b) {
  Value v;
  v.kind_ = Kind::boolean;
  v.integer_ = b ? 1 : 0;
  return v;
}

DataTree::Value DataTree::integer(std::int64_t i) {
  Value v;
  v.kind_ = Kind::integer;
  v.integer_ = i;
  return v;
}

DataTree::Value DataTree::real(double d) {
  Value v;
  v.kind_ = Kind::real;
  v.real_ = d;
  return v;
}

DataTree::Value DataTree::string(std::string_view s) {
  Value v;
  v.kind_ = Kind::string;
  v.number_ = static_cast<std::uint32_t>(strings_.size());
  strings_.push_back(s);
  return v;
}

DataTree::Value DataTree::copied_string(std::string s) {
  own_strings_.push_back(std::move(s));
  return string(own_strings_.back());
}

DataTree::Value DataTree::container(Kind kind) {
  Value v;
  v.kind_ = kind;
  v.number_ = static_cast<std::uint32_t>(containers_.size());
  containers_.emplace_back();
  return v;
}

DataTree::Value DataTree::list() { return container(Kind::list); }
DataTree::Value DataTree::dict() { return container(Kind::dict); }

void DataTree::append(const Value& container, std::span<const Value> items) {
  Container& c = containers_[container.number_];
  const std::size_t size = c.size + items.size();
  if (size > c.capacity) {
    const bool at_end = c.begin + c.capacity == values_.size() && c.capacity > 0;
    const std::size_t old_begin = c.begin;
    const std::size_t capacity = c.size == 0 ? size : std::max(size, std::size_t{c.size} * 2);
    if (!at_end) c.begin = values_.size();
    values_.resize(c.begin + capacity);
    if (!at_end) {
      std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(old_begin), c.size,
                  values_.begin() + static_cast<std::ptrdiff_t>(c.begin));
    }
    c.capacity = static_cast<std::uint32_t>(capacity);
  }
  std::copy(items.begin(), items.end(),
            values_.begin() + static_cast<std::ptrdiff_t>(c.begin + c.size));
  c.size = static_cast<std::uint32_t>(size);
}

std::span<const DataTree::Value> DataTree::contents(const Value& v, Kind kind) const {
  if (v.kind_ != kind) return {};
  const Container& c = containers_[v.number_];
  return std::span(values_).subspan(c.begin, c.size);
}

std::span<const DataTree::Value> DataTree::items(const Value& list) const {
  return contents(list, Kind::list);
}

std::span<const DataTree::Value> DataTree::pairs(const Value& dict) const {
  return contents(dict, Kind::dict);
}

std::string_view DataTree::text(const Value& string) const {
  return string.kind_ == Kind::string ? strings_[string.number_] : std::string_view{};
}

const DataTree::Value* DataTree::find(const Value& dict, std::string_view key) const {
  const std::span<const Value> all = pairs(dict);
  for (std::size_t i = all.size(); i >= 2; i -= 2) {
    if (text(all[i - 2]) == key) return &all[i - 1];
  }
  return nullptr;
}

}  // namespace lockstep
