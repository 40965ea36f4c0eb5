// gzip, in and out, through zlib. Bounded: a small hostile file cannot fill the memory.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep {

bool looks_like_gzip(std::string_view bytes);

// How much a file of `packed` bytes may unpack to: 200 times its size, but never less than 256 MiB
// and never more than kLargestFile. Traces pack 5:1 to 40:1; deflate itself goes up to 1032:1.
std::size_t inflation_limit(std::size_t packed);

struct Inflated {
  std::string text;
  bool truncated = false;  // the stream was cut off or damaged; `text` is what came before
};

// Inflates one or more gzip members. Damage is not an error: what could be read is returned with
// `truncated` set. Memory: the text; twice that for a moment, where it grows beyond what the
// file says of its length. Never more than twice `limit`.
// Errors: not gzip at all, or more than `limit` bytes come out.
Result<Inflated> gunzip(std::string_view bytes, const std::string& file, std::size_t limit);

std::string gzip(std::string_view text);

}  // namespace lockstep
