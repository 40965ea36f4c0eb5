// The source place of a call, as traces write it ("trainer.cc:120", "/job/src/train.py:57:3"),
// taken apart for formats that show findings beside the code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "verify/report.h"

namespace lockstep {

struct SourcePlace {
  std::string file;                     // valid UTF-8, "/" between folders; relative where it is
                                        // inside of the root
  std::uint32_t line = 0;               // from 1
  std::optional<std::uint32_t> column;  // from 1
};

// `root`: an absolute folder; what is inside of it is named relative to it, as CI services do.
// Nothing where `at` does not end in a line number: then it is only text.
std::optional<SourcePlace> source_place(std::string_view at, std::string_view root = {});

// Where a finding is shown: the first place of a culprit's evidence, else of anybody's.
std::optional<SourcePlace> place_of(const Finding& finding, std::string_view root = {});

}  // namespace lockstep
