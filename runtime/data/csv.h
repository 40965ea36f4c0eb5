// Comma-separated values as in RFC 4180: fields may be quoted, and a quoted field may contain
// commas, line breaks and doubled quotes; lines end in LF or CRLF.
//
//   image,caption
//   0001.png,"a ""large"" circle, red"
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::runtime {

struct CsvRow {
  int line = 0;  // where it starts, from 1
  std::vector<std::string> fields;
};

// Reads row by row. Skips empty lines, and a byte order mark at the start.
class CsvReader {
 public:
  // `text` must outlive the reader. `file` is for messages.
  CsvReader(std::string_view text, std::string file);

  // The next row; nothing at the end. Errors, with the line: an unterminated quote, text right
  // after a closing quote. Reading stops there.
  Result<std::optional<CsvRow>> next();

 private:
  Result<std::string> quoted_field();
  std::string plain_field();
  bool at_end_of_row();

  std::string_view rest_;
  std::string file_;
  int line_ = 1;
};

}  // namespace lockstep::runtime
