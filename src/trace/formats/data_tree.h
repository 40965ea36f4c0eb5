// DataTree: a dump's content as plain data, whether it came as a pickle or as JSON: nothing,
// booleans, numbers, strings, lists and dictionaries.
//
// Values are 16 bytes in one array; strings are views into the file. A string that the file writes
// once and refers to again has one number, so that readers look a key up once per file and not once
// per entry (string_count, string_number).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class DataTree {
 public:
  enum class Kind : std::uint8_t { none, boolean, integer, real, string, list, dict };

  class Value {
   public:
    Kind kind() const { return kind_; }
    bool is(Kind kind) const { return kind_ == kind; }
    bool boolean() const { return kind_ == Kind::boolean && integer_ != 0; }
    // Of an integer; else `otherwise`.
    std::int64_t integer(std::int64_t otherwise) const {
      return kind_ == Kind::integer ? integer_ : otherwise;
    }
    double real() const { return real_; }  // of a real
    // Of a string: its number in the tree. Of a list or dict: the container's.
    std::uint32_t number() const { return number_; }

   private:
    friend class DataTree;
    Kind kind_ = Kind::none;
    std::uint32_t number_ = 0;
    union {
      std::int64_t integer_ = 0;
      double real_;
    };
  };
  static_assert(sizeof(Value) == 16);

  static Value none() { return {}; }
  static Value boolean(bool b);
  static Value integer(std::int64_t i);
  static Value real(double d);
  Value string(std::string_view s);  // `s` must outlive the tree
  Value copied_string(std::string s);
  Value list();
  Value dict();

  // Adds to a list, or to a dict as key, value, key, value, …. Amortised O(items).
  void append(const Value& container, std::span<const Value> items);

  std::span<const Value> items(const Value& list) const;  // empty where it is no list
  // Keys and values by turns; empty where it is no dict. A repeated key: the last one counts.
  std::span<const Value> pairs(const Value& dict) const;
  std::string_view text(const Value& string) const;  // "" where it is no string
  // The value of that key; null where there is none. O(pairs).
  const Value* find(const Value& dict, std::string_view key) const;

  std::size_t string_count() const { return strings_.size(); }
  std::string_view string_at(std::size_t number) const { return strings_[number]; }

  Value root;

 private:
  struct Container {
    std::size_t begin = 0;
    std::uint32_t size = 0, capacity = 0;
  };
  Value container(Kind kind);
  std::span<const Value> contents(const Value& v, Kind kind) const;

  std::vector<Value> values_;
  std::vector<Container> containers_;
  std::vector<std::string_view> strings_;
  std::deque<std::string> own_strings_;
};

}  // namespace lockstep
