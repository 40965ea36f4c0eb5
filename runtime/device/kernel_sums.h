// The sums over a tensor's elements that the GPU's kernel (fingerprint_kernel.cu) computes for a
// fingerprint. Plain functions, which the host and NVRTC both compile. 104 bytes per thread or
// block.
#pragma once

#include "trace/values/fingerprint_arithmetic.h"

namespace lockstep::runtime::fingerprinting {

using namespace trace::fingerprinting;  // the same sums on the CPU

// No initialisers: it is in shared memory.
struct KernelSums {
  Word hash;
  Word non_finite;
  long long lowest, highest;  // order_key() of finite elements as doubles; lowest > highest: none
  double squares;
  double sketch[kSketchMost];
};

constexpr KernelSums no_sums() {
  KernelSums out{};
  out.lowest = 0x7FFFFFFFFFFFFFFFLL;
  out.highest = -out.lowest - 1;
  return out;
}

constexpr void join(KernelSums& sums, const KernelSums& others) {
  sums.hash += others.hash;
  sums.non_finite += others.non_finite;
  if (others.lowest < sums.lowest) sums.lowest = others.lowest;
  if (others.highest > sums.highest) sums.highest = others.highest;
  sums.squares += others.squares;
  for (unsigned j = 0; j < kSketchMost; ++j) sums.sketch[j] += others.sketch[j];
}

// Adds one element. `x` and `key` = order_key(x) are its value if `bits` are finite, else unused.
template <class Bits>
constexpr void take_element(KernelSums& sums, Bits bits, double x, long long key, Word index,
                            Word signs) {
  sums.hash += hash_term(canonical(bits), index);
  if (!is_finite(bits)) {
    ++sums.non_finite;
    return;
  }
  if (key < sums.lowest) sums.lowest = key;
  if (key > sums.highest) sums.highest = key;
  sums.squares += x * x;
  const unsigned byte = sign_byte(signs, index);
  for (unsigned j = 0; j < kSketchMost; ++j) sums.sketch[j] += (byte >> j & 1U) != 0 ? -x : x;
}

}  // namespace lockstep::runtime::fingerprinting
