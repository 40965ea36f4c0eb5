// Walks over huge or damaged JSON without parsing it. It finds where values begin and end by
// brackets and strings alone, so that only the few values that matter go to a real parser.
//
//   JsonMembers top(text);
//   while (auto member = top.next()) use(member->key, member->begin);
//
// Nothing is allocated and nothing recurses, whatever the nesting. Each byte is read once.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::trace {

// One past the end of the value that begins at text[at]; npos where the text ends first or the
// value is longer than `limit`. Does not check that the value is valid.
std::size_t json_value_end(std::string_view text, std::size_t at,
                           std::size_t limit = std::string_view::npos);

// The first position from `at` on that is not white space; text.size() where there is none.
std::size_t json_skip_blanks(std::string_view text, std::size_t at);

// The members of the object with which `text` begins, in order.
class JsonMembers {
 public:
  explicit JsonMembers(std::string_view text);

  struct Member {
    std::string_view key;  // as in the file, with its escapes, without the quotes
    std::size_t begin;     // where its value begins in `text`
  };
  // The next member; nothing at the object's end, or where the text is cut off or is not an object
  // (ended() says which). Skips the previous value, unless leave_at was called.
  std::optional<Member> next();
  // Continues at `end`, for a caller that walked through the value itself.
  void leave_at(std::size_t end) {
    at_ = end;
    in_value_ = false;
  }
  // True once the closing bracket was seen.
  bool ended() const { return ended_; }

 private:
  std::string_view text_;
  std::size_t at_;
  bool in_value_ = false;
  bool ended_ = false;
  bool failed_ = false;
};

// The values of the list that begins at text[at], in order.
class JsonElements {
 public:
  // A value longer than `longest` counts as one without an end.
  JsonElements(std::string_view text, std::size_t at, std::size_t longest = std::string_view::npos)
      : text_(text), at_(at), longest_(longest) {}

  // The next value, whole; nothing at the list's end, where the text is not a list, or where a
  // value has no end (ended() says which).
  std::optional<std::string_view> next();
  // True once the closing bracket was seen. at() is then one past it, otherwise where the value
  // begins that was not read.
  bool ended() const { return ended_; }
  std::size_t at() const { return at_; }
  // Continues with the value at `at`, for a caller that found where the next one begins.
  void go_on_at(std::size_t at) { at_ = at; }

 private:
  std::string_view text_;
  std::size_t at_, longest_;
  bool begun_ = false, ended_ = false;
};

// `text` with words that are not JSON, but that profilers print in place of numbers (nan, inf,
// -Infinity), replaced by null.
std::string json_without_bare_words(std::string_view text);

}  // namespace lockstep::trace
