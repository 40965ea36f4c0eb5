// Sets of ranks as indices into Run::ranks, ascending.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

namespace lockstep {

using RankIndices = std::vector<std::uint32_t>;

// What is in either of two ascending lists, ascending.
template <class T>
std::vector<T> united(const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> out;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

}  // namespace lockstep
