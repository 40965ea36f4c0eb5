// DataTree: a dump's content as plain data, from a pickle or from JSON: nothing, booleans, numbers,
// strings, lists and dictionaries.
//
// Values take 16 bytes each in one array; strings are views into the file. A string that the file
// contains once and refers to again has one number (Value::number), so readers can look a key up
// once per file and not once per entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lockstep::trace {

class DataTree {
 public:
  enum class Kind : std::uint8_t { none, boolean, integer, real, string, list, dict };

  class Value {
   public:
    Value() = default;  // indeterminate, so that arrays of values are copied as bytes
    bool is(Kind kind) const { return kind_ == kind; }
    bool boolean() const { return kind_ == Kind::boolean && integer_ != 0; }
    // The integer; `otherwise` where the value is none.
    std::int64_t integer(std::int64_t otherwise) const {
      return kind_ == Kind::integer ? integer_ : otherwise;
    }
    // The string's number in the tree, or the number of the list or dict.
    std::uint32_t number() const { return number_; }

   private:
    friend class DataTree;
    explicit Value(Kind kind) : kind_(kind), number_(0), integer_(0) {}
    Kind kind_;
    std::uint32_t number_;
    union {
      std::int64_t integer_;
      double real_;
    };
  };
  static_assert(sizeof(Value) == 16 && std::is_trivial_v<Value>);

  static Value none() { return Value(Kind::none); }
  static Value boolean(bool b) {
    Value v(Kind::boolean);
    v.integer_ = b ? 1 : 0;
    return v;
  }
  static Value integer(std::int64_t i) {
    Value v(Kind::integer);
    v.integer_ = i;
    return v;
  }
  static Value real(double d) {
    Value v(Kind::real);
    v.real_ = d;
    return v;
  }
  Value string(std::string_view s) {  // `s` must outlive the tree
    Value v(Kind::string);
    v.number_ = static_cast<std::uint32_t>(strings_.size());
    strings_.push_back(s);
    return v;
  }
  Value copied_string(std::string s);
  Value list() { return container(Kind::list); }
  Value dict() { return container(Kind::dict); }

  // Makes room for this many values and containers in all.
  void reserve(std::size_t values, std::size_t containers) {
    values_.reserve(values);
    containers_.reserve(containers);
  }

  // Adds to a list, or to a dict as key, value, key, value, …. Amortised O(items).
  void append(const Value& container, std::span<const Value> items) {
    Container& c = containers_[container.number_];
    if (c.size != 0) return grow(c, items);
    c.begin = values_.size();
    c.size = c.capacity = static_cast<std::uint32_t>(items.size());
    if (items.size() <= 2) {  // nearly all: shapes, types; a call of insert() costs more
      for (const Value& v : items) values_.push_back(v);
    } else {
      values_.insert(values_.end(), items.begin(), items.end());
    }
  }

  // The list's items; empty where the value is no list. Valid until the next append.
  std::span<const Value> items(const Value& list) const { return contents(list, Kind::list); }
  // Key, value, key, value, …; empty where the value is no dict. Of a repeated key the last counts.
  std::span<const Value> pairs(const Value& dict) const { return contents(dict, Kind::dict); }
  std::string_view text(const Value& string) const {  // "" where the value is no string
    return string.kind_ == Kind::string ? strings_[string.number_] : std::string_view{};
  }
  // The value of a key; null where there is none. O(pairs).
  const Value* find(const Value& dict, std::string_view key) const;

  std::size_t string_count() const { return strings_.size(); }

  Value root = none();

 private:
  struct Container {
    std::size_t begin = 0;
    std::uint32_t size = 0, capacity = 0;
  };
  Value container(Kind kind) {
    Value v(kind);
    v.number_ = static_cast<std::uint32_t>(containers_.size());
    containers_.push_back({});
    return v;
  }
  void grow(Container& c, std::span<const Value> items);
  std::span<const Value> contents(const Value& v, Kind kind) const {
    if (v.kind_ != kind) return {};
    const Container& c = containers_[v.number_];
    return {values_.data() + c.begin, c.size};
  }

  std::vector<Value> values_;
  std::vector<Container> containers_;
  std::vector<std::string_view> strings_;
  std::deque<std::string> own_strings_;
};

}  // namespace lockstep::trace
