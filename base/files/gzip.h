// gzip in both directions, by zlib. Bounded: a small hostile file cannot fill the memory.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep {

bool looks_like_gzip(std::string_view bytes);

// The largest size that a file of `packed` bytes may unpack to: 200 times, but at least 256 MiB and
// at most kLargestFile. Traces pack 5:1 to 40:1; deflate itself reaches 1032:1.
std::size_t inflation_limit(std::size_t packed);

struct Inflated {
  std::string text;
  bool truncated = false;  // cut off or damaged; `text` is what came before
};

// Inflates one or more gzip members. Damage is not an error: what could be read is returned, with
// `truncated` set. Memory: the text, for a moment twice if it grows beyond the length that the file
// states; never more than twice `limit`. Errors: not gzip; more than `limit` bytes.
Result<Inflated> gunzip(std::string_view bytes, const std::string& file, std::size_t limit);

std::string gzip(std::string_view text);

}  // namespace lockstep
