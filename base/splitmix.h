// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA
// 2014): random numbers that are the same with every standard library, unlike those of std's
// distributions.
//
// The n-th number of a seed is splitmix64(seed + n · kSplitMixStep), n from 1: a generator adds the
// step to its state for each number, and a counter-based one needs no state.
#pragma once

#include <cstdint>

namespace lockstep {

// 2^64 divided by the golden ratio, made odd: sums of it visit every 64-bit number.
inline constexpr std::uint64_t kSplitMixStep = 0x9E3779B97F4A7C15U;

// A bijection whose output bits each depend on all bits of the state.
constexpr std::uint64_t splitmix64(std::uint64_t state) {
  state = (state ^ (state >> 30U)) * 0xBF58476D1CE4E5B9U;
  state = (state ^ (state >> 27U)) * 0x94D049BB133111EBU;
  return state ^ (state >> 31U);
}

}  // namespace lockstep
