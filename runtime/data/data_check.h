// Checks a whole data set: what it contains, and what cannot be used.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/manifest.h"
#include "runtime/data/wordpiece.h"

namespace lockstep::runtime {

// Upper bounds of the bins of text lengths; one more bin has the longer ones.
inline constexpr std::array<std::int64_t, 6> kLengthBins = {8, 16, 32, 64, 128, 512};

struct DataCheck {
  std::int64_t items = 0;
  std::int64_t both = 0;           // usable items with an image and a text
  std::int64_t image_only = 0;     // usable items
  std::int64_t text_only = 0;      // usable items
  std::int64_t damaged = 0;        // images that can be read although they are damaged
  std::int64_t unreadable = 0;     // items
  std::vector<Error> reasons;      // of the first unreadable ones
  std::string misalignment;        // Manifest::misalignment
  std::vector<std::string> notes;  // Manifest::notes
  bool tokens = false;             // lengths are in tokens (else in characters)
  std::array<std::int64_t, kLengthBins.size() + 1> lengths{};  // texts per bin
  std::int64_t longest = 0;
  std::uint64_t digest = 0;

  bool is_fine() const { return unreadable == 0 && misalignment.empty(); }
};

// Decodes every image and tokenizes every text (`tokenizer` may be null), with `workers` threads.
// Keeps `most_reasons` reasons.
DataCheck check_data(const Manifest& data, const WordPiece* tokenizer, int workers,
                     std::size_t most_reasons);

// As text for people, in lines of at most 80 columns, except those with longer file names.
std::string check_report(const DataCheck& check);

}  // namespace lockstep::runtime
