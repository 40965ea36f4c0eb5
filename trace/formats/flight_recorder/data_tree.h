// DataTree: a dump's content as plain data, from a pickle or from JSON: nothing, booleans, numbers,
// strings, lists and dictionaries.
//
// Values take 8 bytes each in one array; strings are views into the file. A string that the file
// contains once and refers to again has one number (Value::number), so readers can look a key up
// once per file and not once per entry.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::trace {

class DataTree {
 public:
  enum class Kind : std::uint8_t { none, boolean, integer, real, string, list, dict };

  // Eight bytes, for speed: the values of a dump are many times its size, and with twice as much
  // they would no longer fit the processor's cache. An integer has its lowest bit set and the value
  // in the other 63; anything else has its kind above a lowest bit of 0, and its number in the
  // upper half.
  class Value {
   public:
    Value() = default;  // indeterminate, so that arrays of values are copied as bytes
    bool is(Kind kind) const {
      return kind == Kind::integer ? (bits_ & 1) != 0 : (bits_ & kTag) == tag_of(kind);
    }
    bool boolean() const { return is(Kind::boolean) && number() != 0; }
    // The integer; `otherwise` where the value is none.
    std::int64_t integer(std::int64_t otherwise) const {
      return is(Kind::integer) ? static_cast<std::int64_t>(bits_) >> 1 : otherwise;
    }
    // The string's number in the tree, or the number of the list or dict.
    std::uint32_t number() const { return static_cast<std::uint32_t>(bits_ >> 32); }
    // Whether both are the same string, list or dict of the tree, or equal numbers.
    bool operator==(const Value&) const = default;

   private:
    friend class DataTree;
    Value(Kind kind, std::uint64_t number) : bits_(number << 32 | tag_of(kind)) {}
    static constexpr std::uint64_t tag_of(Kind kind) {
      return static_cast<std::uint64_t>(kind) << 1;
    }
    static constexpr std::uint64_t kTag = 0xf;
    std::uint64_t bits_;
  };
  static_assert(sizeof(Value) == 8 && std::is_trivial_v<Value>);

  static Value none() { return {Kind::none, 0}; }
  static Value boolean(bool b) { return {Kind::boolean, b ? 1U : 0U}; }
  // None where the number needs 64 bits: no recorder writes such a one.
  static Value integer(std::int64_t i) {
    Value v;
    v.bits_ = static_cast<std::uint64_t>(i) << 1 | 1;
    return static_cast<std::int64_t>(v.bits_) >> 1 == i ? v : none();
  }
  // A number with a fraction. Nothing reads its value.
  static Value real() { return {Kind::real, 0}; }
  Value string(std::string_view s) {  // `s` must outlive the tree
    strings_.push_back(s);
    return {Kind::string, strings_.size() - 1};
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
    Container& c = containers_[container.number()];
    if (c.size != 0) return add_more(c, items);
    c.begin = values_.size();
    c.size = c.capacity = static_cast<std::uint32_t>(items.size());
    Value* const at = values_.add(items.size());
    constexpr std::size_t kFew = 4;  // nearly all lists have as few: not worth a call
    if (items.size() > kFew) {
      std::copy(items.begin(), items.end(), at);
    } else {
      for (std::size_t i = 0; i < items.size(); ++i) at[i] = items[i];
    }
  }

  // The list's items; empty where the value is not a list. Valid until the next append.
  std::span<const Value> items(const Value& list) const { return contents(list, Kind::list); }
  // Key, value, key, value, …; empty where the value is not a dict. If a key is repeated, the last
  // counts.
  std::span<const Value> pairs(const Value& dict) const { return contents(dict, Kind::dict); }
  std::string_view text(const Value& string) const {  // "" where the value is not a string
    return string.is(Kind::string) ? strings_[string.number()] : std::string_view{};
  }
  // The value of a key; null where there is none. O(pairs).
  const Value* find(const Value& dict, std::string_view key) const;

  std::size_t string_count() const { return strings_.size(); }

  Value root = none();

 private:
  struct Container {
    std::size_t begin;
    std::uint32_t size, capacity;
  };
  // A growing array of plain data. Not a std::vector: with the code by which one grows inlined, to
  // add an element took longer than all the rest of making a list.
  template <class T>
  class Array {
   public:
    // The first of `count` new elements, which are indeterminate. Amortised O(1).
    T* add(std::size_t count) {
      if (capacity_ - size_ < count) [[unlikely]]
        reserve(std::max(2 * capacity_, size_ + count));
      size_ += count;
      return data_.get() + size_ - count;
    }
    [[gnu::noinline]] void reserve(std::size_t capacity) {
      auto larger = std::make_unique_for_overwrite<T[]>(capacity);
      std::copy_n(data_.get(), size_, larger.get());
      data_ = std::move(larger);
      capacity_ = capacity;
    }
    T& operator[](std::size_t i) { return data_[i]; }
    const T& operator[](std::size_t i) const { return data_[i]; }
    T* data() { return data_.get(); }
    const T* data() const { return data_.get(); }
    std::size_t size() const { return size_; }

   private:
    std::unique_ptr<T[]> data_;
    std::size_t size_ = 0, capacity_ = 0;
  };

  Value container(Kind kind) {
    *containers_.add(1) = {0, 0, 0};
    return {kind, containers_.size() - 1};
  }
  void add_more(Container& c, std::span<const Value> items);
  std::span<const Value> contents(const Value& v, Kind kind) const {
    if (!v.is(kind)) return {};
    const Container& c = containers_[v.number()];
    return {values_.data() + c.begin, c.size};
  }

  Array<Value> values_;
  Array<Container> containers_;
  std::vector<std::string_view> strings_;
  std::deque<std::string> own_strings_;
};

// How many values may still be visited. A pickle may refer to one part of itself any number of
// times, in two bytes each; with a budget by its size, reading stays linear.
class VisitBudget {
 public:
  explicit VisitBudget(std::size_t file_bytes)
      : left_(kVisitsPerByte * file_bytes + kVisitsOfASmallFile) {}

  // False: the budget is used up, and the values are not to be visited.
  bool spend(std::size_t values) {
    if (values > left_) {
      exhausted_ = true;
      return false;
    }
    left_ -= values;
    return true;
  }
  bool exhausted() const { return exhausted_; }

 private:
  // A recorder refers to a shared frame in two bytes, and the reader visits its few parts.
  static constexpr std::size_t kVisitsPerByte = 4;
  static constexpr std::size_t kVisitsOfASmallFile = 4096;

  std::size_t left_;
  bool exhausted_ = false;
};

}  // namespace lockstep::trace
