// Walks over huge or damaged JSON without parsing it: finds where values begin and end by brackets
// and strings alone, so that only the few that matter are handed to a real parser.
//
//   JsonMembers top(text);
//   while (auto member = top.next()) use(member->key, member->value);
//
// Nothing is allocated and nothing recurses, whatever the nesting; every byte is looked at once.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::trace {

// One past the end of the value that starts at text[at]; npos where the text ends before, or the
// value is longer than `limit`. Does not check that the value is valid.
std::size_t json_value_end(std::string_view text, std::size_t at,
                           std::size_t limit = std::string_view::npos);

// The first position from `at` on that is no white space; text.size() where there is none.
std::size_t json_skip_blanks(std::string_view text, std::size_t at);

// The members of the object with which `text` begins, in order.
class JsonMembers {
 public:
  explicit JsonMembers(std::string_view text);

  struct Member {
    std::string_view key;  // as it stands in the file, without the quotes
    std::size_t begin;     // where its value begins in `text`
  };
  // The next member; nothing at the object's end, or where the text is cut off or no object
  // (ended() tells which). The value before it is skipped, unless leave_at was called.
  std::optional<Member> next();
  // Goes on behind a value that the caller walked through himself.
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

// `text` with what is no JSON but is found where numbers belong (nan, inf, -Infinity) made null.
// Profilers print such ratios.
std::string json_without_bare_words(std::string_view text);

}  // namespace lockstep::trace
