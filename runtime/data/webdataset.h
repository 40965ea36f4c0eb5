// Lists of shards, as WebDataset names them: "train-{000..007}.tar".
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::runtime {

inline constexpr std::size_t kMostShards = 1'000'000;

// Every brace group of the pattern written out, in order: {000..007} counts with leading zeros,
// {a,b} lists. Without braces: the pattern itself.
// Errors: a brace that is not closed, a range that runs backwards, more than kMostShards.
Result<std::vector<std::string>> expand_braces(const std::string& pattern);

}  // namespace lockstep::runtime
