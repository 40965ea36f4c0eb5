// Comma-separated values as RFC 4180 has them: fields may be quoted, a quoted field may hold
// commas, line breaks and doubled quotes; lines end in LF or CRLF.
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

// Reads row by row. Empty lines are passed over, as is a byte order mark at the start.
class CsvReader {
 public:
  // `text` must outlive the reader. `file` stands in messages.
  CsvReader(std::string_view text, std::string file);

  // The next row; nothing at the end. Errors, with the line: a quote that is never closed, text
  // right behind a closing quote. Reading stops there.
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
