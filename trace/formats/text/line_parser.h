// LineParser: hands out a text line by line, each parsed as one JSON object. Internal to the text
// reader.
//
// Every line is parsed by itself, not the text in bulk: so a line that is no JSON costs that line
// and nothing behind it.
#pragma once

#include <simdjson.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

class LineParser {
 public:
  // `text` must outlive the parser. A byte order mark at its start is passed over.
  explicit LineParser(std::string_view text);

  // Goes to the next line that is not blank; false at the end of the text.
  bool next();

  int number() const { return number_; }  // of the current line, 1-based; stays at INT32_MAX

  // The keys of the current line, valid until the next call. On failure `problem` says why.
  bool parse(simdjson::dom::object& object, std::string& problem);

 private:
  // The current line, with as many readable bytes behind it as simdjson wants.
  const char* with_padding();
  bool make_room();
  std::string why(simdjson::error_code status) const;

  std::string_view rest_;  // what follows the current line
  std::string_view line_;
  bool terminated_ = false;  // the line ends with a line feed
  int number_ = 0;
  std::string last_lines_;
  simdjson::dom::parser parser_;
};

}  // namespace lockstep
