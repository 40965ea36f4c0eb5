// The fingerprint of a tensor in one pass over its elements on a GPU (trace/values/fingerprint.h).
//
// fingerprint_TYPE: every thread takes groups of eight elements (one word of signs), as far apart as
// there are threads; the threads of a block join in a tree, in shared memory; a block leaves one
// KernelSums. fingerprint_join: one block joins those of all blocks. All orders are fixed, so a
// tensor has the same bits every time with the same number of blocks.
//
// The worker gives this text to NVRTC when it starts. A test compiles it for the host, where
// each_thread is a loop: so a kernel is a row of phases, and what threads tell each other lies in
// shared memory between them.
#include "runtime/device/kernel_sums.h"

#ifdef __CUDACC__

#define LOCKSTEP_KERNEL extern "C" __global__
#define LOCKSTEP_SHARED __shared__

namespace lockstep::runtime::fingerprinting {

__device__ unsigned block_index() { return blockIdx.x; }
__device__ unsigned blocks() { return gridDim.x; }

template <class Body>
__device__ void each_thread(Body body) {
  body(threadIdx.x);
  __syncthreads();
}

__device__ Word bits_of(double x) { return static_cast<Word>(__double_as_longlong(x)); }
__device__ double value_of(unsigned bits) { return __uint_as_float(bits); }
__device__ double value_of(Word bits) { return __longlong_as_double(static_cast<long long>(bits)); }

}  // namespace lockstep::runtime::fingerprinting

#endif

namespace lockstep::runtime::fingerprinting {

constexpr unsigned kKernelThreads = 256;  // of a block: a power of two

// What is hashed of an element: the bits of a float for types that a float holds, else of a double.
struct OfFloat32 {
  using Element = unsigned;
  static constexpr unsigned bits(Element e) { return e; }
};
struct OfFloat64 {
  using Element = Word;
  static constexpr Word bits(Element e) { return e; }
};
struct OfFloat16 {
  using Element = unsigned short;
  static constexpr unsigned bits(Element e) { return float_bits_of_half(e); }
};
struct OfBfloat16 {
  using Element = unsigned short;
  static constexpr unsigned bits(Element e) { return float_bits_of_bfloat16(e); }
};
template <class Integer>
struct OfInteger {
  using Element = Integer;
  static Word bits(Element e) { return bits_of(static_cast<double>(e)); }
};

// The block's threads' sums into the first one's.
inline void join_threads(KernelSums* threads) {
  for (unsigned half = kKernelThreads / 2; half > 0; half /= 2) {
    each_thread([=](unsigned thread) {
      if (thread < half) join(threads[thread], threads[thread + half]);
    });
  }
}

// `count` elements from index `first` of the flattened tensor on; `out`: one for each block.
template <class Type>
inline void take_tensor(const typename Type::Element* values, Word count, Word first,
                        KernelSums* out) {
  LOCKSTEP_SHARED KernelSums threads[kKernelThreads];
  const Word end = first + count;
  const Word apart = static_cast<Word>(blocks()) * kKernelThreads;
  const Word own = first / 8 + static_cast<Word>(block_index()) * kKernelThreads;
  KernelSums* const shared = threads;
  each_thread([=](unsigned thread) {
    KernelSums sums = no_sums();
    for (Word group = own + thread; group * 8 < end; group += apart) {
      const Word signs = sign_word(group * 8);
      for (Word index = group * 8; index < group * 8 + 8; ++index) {
        if (index < first || index >= end) continue;
        const auto bits = Type::bits(values[index - first]);
        const double x = value_of(bits);
        take_element(sums, bits, x, order_key(bits_of(x)), index, signs);
      }
    }
    shared[thread] = sums;
  });
  join_threads(threads);
  each_thread([=](unsigned thread) {
    if (thread == 0) out[block_index()] = shared[0];
  });
}

LOCKSTEP_KERNEL void fingerprint_join(const KernelSums* parts, Word count, KernelSums* out) {
  LOCKSTEP_SHARED KernelSums threads[kKernelThreads];
  KernelSums* const shared = threads;
  each_thread([=](unsigned thread) {
    shared[thread] = no_sums();
    for (Word i = thread; i < count; i += kKernelThreads) join(shared[thread], parts[i]);
  });
  join_threads(threads);
  each_thread([=](unsigned thread) {
    if (thread == 0) *out = shared[0];
  });
}

LOCKSTEP_KERNEL void fingerprint_float32(const unsigned* values, Word count, Word first,
                                         KernelSums* out) {
  take_tensor<OfFloat32>(values, count, first, out);
}
LOCKSTEP_KERNEL void fingerprint_float64(const Word* values, Word count, Word first,
                                         KernelSums* out) {
  take_tensor<OfFloat64>(values, count, first, out);
}
LOCKSTEP_KERNEL void fingerprint_float16(const unsigned short* values, Word count, Word first,
                                         KernelSums* out) {
  take_tensor<OfFloat16>(values, count, first, out);
}
LOCKSTEP_KERNEL void fingerprint_bfloat16(const unsigned short* values, Word count, Word first,
                                          KernelSums* out) {
  take_tensor<OfBfloat16>(values, count, first, out);
}
LOCKSTEP_KERNEL void fingerprint_int64(const long long* values, Word count, Word first,
                                       KernelSums* out) {
  take_tensor<OfInteger<long long>>(values, count, first, out);
}
LOCKSTEP_KERNEL void fingerprint_int32(const int* values, Word count, Word first, KernelSums* out) {
  take_tensor<OfInteger<int>>(values, count, first, out);
}
LOCKSTEP_KERNEL void fingerprint_int16(const short* values, Word count, Word first,
                                       KernelSums* out) {
  take_tensor<OfInteger<short>>(values, count, first, out);
}
LOCKSTEP_KERNEL void fingerprint_int8(const signed char* values, Word count, Word first,
                                      KernelSums* out) {
  take_tensor<OfInteger<signed char>>(values, count, first, out);
}
LOCKSTEP_KERNEL void fingerprint_uint8(const unsigned char* values, Word count, Word first,
                                       KernelSums* out) {
  take_tensor<OfInteger<unsigned char>>(values, count, first, out);
}

}  // namespace lockstep::runtime::fingerprinting
