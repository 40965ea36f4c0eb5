// Result<T>: a value, or an Error that says where the input is bad, why, and how to fix it.
//
//   Result<Scenario> s = load_scenario(path);
//   if (!s) return s.error();
//   use(*s);
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace lockstep {

// A location in the user's input. line and column count from 1; 0 means unknown.
struct Location {
  std::string file;
  int line = 0;
  int column = 0;

  // "file:line:column", without the parts that are unknown.
  std::string str() const;
};

struct Error {
  std::string message;  // what is wrong, one sentence, lower case, no full stop
  Location location;
  std::string fix;  // what to do about it; may be empty

  // "file:line:column: error: message" and, if there is a fix, "\n  fix: …". Safe to print on a
  // terminal, whatever the file is called. Line breaks of message and fix are kept, so foreign text
  // in them must have passed through printable().
  std::string str() const;
  // For lists: one line, without "error:" and the fix.
  std::string summary() const;
};

// What people call a file, by its path. Most are called by it; what a command keeps of its standard
// input is not.
using FileNames = std::function<std::string(const std::string& path)>;

// The error with that name of its file.
Error renamed(Error error, const FileNames& name_of);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  explicit operator bool() const { return state_.index() == 0; }

  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  T& value() {
    LOCKSTEP_CHECK(state_.index() == 0, "value() of a Result that holds an error");
    return *std::get_if<0>(&state_);
  }
  const T& value() const {
    LOCKSTEP_CHECK(state_.index() == 0, "value() of a Result that holds an error");
    return *std::get_if<0>(&state_);
  }
  const Error& error() const {
    LOCKSTEP_CHECK(state_.index() == 1, "error() of a Result that holds a value");
    return *std::get_if<1>(&state_);
  }

 private:
  std::variant<T, Error> state_;
};

// The Result of a function that returns nothing: `return Status::ok();`.
struct Nothing {};
class [[nodiscard]] Status : public Result<Nothing> {
 public:
  using Result<Nothing>::Result;
  static Status ok() { return Status(Nothing{}); }
};

// Errors of the operating system.

// "<doing>: <the system's message>" about `path`, with a fix. `code` is an errno.
Error system_error(std::string_view doing, int code, const std::string& path);

}  // namespace lockstep
