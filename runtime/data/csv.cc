#include "runtime/data/csv.h"

#include <algorithm>

namespace lockstep::runtime {

CsvReader::CsvReader(std::string_view text, std::string file)
    : rest_(text), file_(std::move(file)) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
}

Result<std::optional<CsvRow>> CsvReader::next() {
  while (!rest_.empty() && at_end_of_row()) {
  }
  if (rest_.empty()) return std::optional<CsvRow>();
  CsvRow row{line_, {}};
  while (true) {
    if (rest_.starts_with('"')) {
      Result<std::string> field = quoted_field();
      if (!field) return field.error();
      row.fields.push_back(std::move(*field));
    } else {
      row.fields.push_back(plain_field());
    }
    if (rest_.empty() || at_end_of_row()) return std::optional(std::move(row));
    if (!rest_.starts_with(',')) {
      return Error{"text after the closing quote of a field",
                   {file_, line_},
                   "double the quotes inside a quoted field: \"\""};
    }
    rest_.remove_prefix(1);
    if (rest_.empty()) {
      row.fields.emplace_back();
      return std::optional(std::move(row));
    }
  }
}

Result<std::string> CsvReader::quoted_field() {
  const int start = line_;
  std::string field;
  rest_.remove_prefix(1);
  while (true) {
    const std::size_t quote = rest_.find('"');
    if (quote == std::string_view::npos) {
      return Error{"a quote that is never closed",
                   {file_, start},
                   "close it, or double a quote that belongs to the text: \"\""};
    }
    field += rest_.substr(0, quote);
    rest_.remove_prefix(quote + 1);
    if (!rest_.starts_with('"')) break;
    field += '"';
    rest_.remove_prefix(1);
  }
  line_ += static_cast<int>(std::count(field.begin(), field.end(), '\n'));
  return field;
}

std::string CsvReader::plain_field() {
  std::size_t end = std::min(rest_.find_first_of(",\n"), rest_.size());
  if (end < rest_.size() && rest_[end] == '\n' && end > 0 && rest_[end - 1] == '\r') --end;
  std::string field(rest_.substr(0, end));
  rest_.remove_prefix(end);
  return field;
}

// Takes a line break, if there is one.
bool CsvReader::at_end_of_row() {
  const std::size_t size = rest_.starts_with("\r\n") ? 2 : rest_.starts_with('\n') ? 1 : 0;
  if (size == 0) return false;
  rest_.remove_prefix(size);
  ++line_;
  return true;
}

}  // namespace lockstep::runtime
