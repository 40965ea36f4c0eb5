#include "base/folded_ranges.h"

#include <cstddef>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

// Fewer blocks are listed in full, which is as short as folding them, and more precise.
constexpr std::size_t kMinFolded = 5;

// Consecutive numbers: "4-7".
struct Block {
  std::int64_t first, last;
  std::int64_t size() const { return last - first + 1; }
  std::string str() const {
    std::string out = std::to_string(first);
    if (first != last) out.append("-").append(std::to_string(last));
    return out;
  }
};

std::vector<Block> blocks_of(std::span<const std::int32_t> sorted) {
  std::vector<Block> out;
  for (const std::int32_t n : sorted) {
    if (!out.empty() && n == out.back().last + 1)
      out.back().last = n;
    else
      out.push_back({n, n});
  }
  return out;
}

// Blocks of equal size at equal distances: 0-7,64-71,128-135.
struct Repeated {
  std::size_t count = 1;       // blocks that are there
  std::vector<Block> missing;  // blocks between them that are not
};

// The longest such run that starts at blocks[begin]. At most two blocks may be missing: for example
// the rank that stopped is not among the ranks that wait for it.
Repeated repeated(const std::vector<Block>& blocks, std::size_t begin) {
  constexpr std::size_t kMaxMissingBlocks = 2;
  Repeated out;
  if (begin + 1 == blocks.size()) return out;
  const Block& first = blocks[begin];
  const std::int64_t distance = blocks[begin + 1].first - first.first;
  std::int64_t expected = blocks[begin + 1].first;
  for (std::size_t i = begin + 1; i < blocks.size();) {
    if (blocks[i].size() != first.size()) break;
    if (blocks[i].first == expected) {
      ++out.count;
      ++i;
    } else if (blocks[i].first == expected + distance && out.missing.size() < kMaxMissingBlocks) {
      out.missing.push_back({expected, expected + first.size() - 1});
    } else {
      break;
    }
    expected += distance;
  }
  return out;
}

std::string_view ordinal_ending(std::int64_t n) {
  if (n / 10 % 10 == 1) return "th";  // 11th, 12th, 113th
  switch (n % 10) {
    case 1:
      return "st";
    case 2:
      return "nd";
    case 3:
      return "rd";
    default:
      return "th";
  }
}

// "0-7,64-71,...,960-967 (8 of every 64)" for the run that starts at blocks[begin].
std::string folded(const std::vector<Block>& blocks, std::size_t begin, const Repeated& run) {
  const Block& first = blocks[begin];
  const std::int64_t distance = blocks[begin + 1].first - first.first;
  const std::string number = std::to_string(distance);
  std::string out = first.str();
  out.append(",").append(blocks[begin + 1].str());
  out.append(",...,").append(blocks[begin + run.count - 1].str());
  if (first.size() == 1)
    out.append(" (every ").append(number).append(ordinal_ending(distance));
  else
    out.append(" (").append(std::to_string(first.size())).append(" of every ").append(number);
  for (std::size_t m = 0; m < run.missing.size(); ++m)
    out.append(m == 0 ? " but " : " and ").append(run.missing[m].str());
  return out + ')';
}

}  // namespace

std::string folded_ranges(std::span<const std::int32_t> sorted) {
  const std::vector<Block> blocks = blocks_of(sorted);
  std::string out;
  for (std::size_t i = 0; i < blocks.size();) {
    if (i > 0) out += ',';
    const Block& block = blocks[i];
    const Repeated same = repeated(blocks, i);
    if (same.count < kMinFolded) {
      // Two in a row are not a range: "3,4", but "3-5".
      if (block.size() == 2)
        out.append(std::to_string(block.first)).append(",").append(std::to_string(block.last));
      else
        out += block.str();
      ++i;
      continue;
    }
    out += folded(blocks, i, same);
    i += same.count;
  }
  return out;
}

}  // namespace lockstep
