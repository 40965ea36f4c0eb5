// The lines of a certificate, as the checker reads them: one after the other, each held against
// what it must be. The first that is wrong is the refusal.
//
// Part of the checker: shares nothing with what writes certificates.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "verify/checker/parts.h"

namespace lockstep::verify::checked {

class Statements {
 public:
  // Refuses at once what does not end with the digest of all lines above. Keeps a view of `text`.
  // O(text); memory does not grow with it.
  Statements(std::string_view text, std::string file);

  // The next line must be this one.
  void expect(const std::string& line);
  // The last line, and nothing behind it.
  void expect_end();
  // The next line, without taking it; empty at the end.
  std::string_view peek() const;
  void skip();
  // The first refusal counts, with the line that was taken last.
  void refuse(const std::string& why);

  bool refused() const { return error_.has_value(); }
  Status status() const { return error_ ? Status(*error_) : Status::ok(); }

 private:
  const std::string file_;
  std::string_view text_;
  std::string seal_;
  std::size_t at_ = 0;       // of the next line, in the text
  std::int64_t number_ = 0;  // lines taken
  std::optional<Error> error_;
};

// The four words of a line, with one blank between them; nothing where it has more or fewer.
std::optional<std::array<std::string_view, 4>> four_words(std::string_view line);

// A number in decimal digits, as it would be written; nothing for anything else.
std::optional<std::uint32_t> plain_number(std::string_view text);

// Does what a certificate says of one situation hold for every choice of every rank?

// By rank: the parts that it may do, into PartTable::all.
using Options = std::vector<std::set<std::uint32_t>>;

// Takes the `agree` and `meet` lines, and refuses unless
//   - every option of every member of a channel makes the stated calls there;
//   - splits of exchanges fit together, and are the same under all options of a rank;
//   - the order holds each stated meeting once, and no option waits for a meeting before it comes
//     to one that stands at the same place or earlier.
// `device`: an enqueued call of a group holds up whatever comes later. O(lines taken + options +
// items of the different options); memory follows the parts, whatever the lines say.
void check_situation(Statements& text, const PartTable& table, const Options& options, bool device);

}  // namespace lockstep::verify::checked
