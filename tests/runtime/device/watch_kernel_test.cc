// The GPU's kernel for fingerprints, compiled for the host: its blocks and threads one after the
// other. What it leaves is the host's own fingerprint: hash, range and counts to the bit, sums as
// close as doubles in another order are.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/device/fingerprint_kernel.h"

// What the kernel's text asks of a device.
#define LOCKSTEP_KERNEL inline
#define LOCKSTEP_SHARED

namespace lockstep::runtime::fingerprinting {

struct Grid {
  unsigned block = 0, blocks = 1;
};
Grid grid;  // the block that runs

inline unsigned block_index() { return grid.block; }
inline unsigned blocks() { return grid.blocks; }

template <class Body>
void each_thread(Body body) {
  for (unsigned thread = 0; thread < kFingerprintThreads; ++thread) body(thread);
}

inline trace::fingerprinting::Word bits_of(double x) {
  return std::bit_cast<trace::fingerprinting::Word>(x);
}
inline double value_of(unsigned bits) { return static_cast<double>(std::bit_cast<float>(bits)); }
inline double value_of(trace::fingerprinting::Word bits) { return std::bit_cast<double>(bits); }

}  // namespace lockstep::runtime::fingerprinting

#include "runtime/device/fingerprint_kernel.cu"

namespace lockstep::runtime {
namespace {

using fingerprinting::grid;
using fingerprinting::KernelSums;
using trace::fingerprinting::Word;

static_assert(fingerprinting::kKernelThreads == kFingerprintThreads);

// As a device would be asked: a launch with so many blocks, and one that joins them.
template <class Element>
trace::Fingerprint launch(void (*kernel)(const Element*, Word, Word, fingerprinting::KernelSums*),
                          const std::vector<Element>& values, std::uint64_t first, unsigned blocks,
                          std::uint32_t k = trace::kSketchValues) {
  std::vector<fingerprinting::KernelSums> parts(blocks);
  for (unsigned block = 0; block < blocks; ++block) {
    fingerprinting::grid = {block, blocks};
    kernel(values.data(), values.size(), first, parts.data());
  }
  fingerprinting::grid = {};
  fingerprinting::KernelSums whole{};
  fingerprinting::fingerprint_join(parts.data(), parts.size(), &whole);
  return fingerprint_of(whole, values.size(), k);
}

template <class T>
trace::Fingerprint on_host(const std::vector<T>& values, std::uint64_t first) {
  trace::Fingerprinter f;
  f.add(values, first);
  return f.finish();
}

void expect_same(const trace::Fingerprint& device, const trace::Fingerprint& host) {
  EXPECT_EQ(device.hash, host.hash);
  EXPECT_EQ(device.non_finite, host.non_finite);
  EXPECT_EQ(device.min, host.min);
  EXPECT_EQ(device.max, host.max);
  const double close = 1e-12 * std::max(host.norm, 1e-290);
  EXPECT_NEAR(device.norm, host.norm, close);
  ASSERT_EQ(device.sketch.size(), host.sketch.size());
  for (std::size_t j = 0; j < host.sketch.size(); ++j) {
    EXPECT_NEAR(device.sketch[j], host.sketch[j], 100 * close);
  }
}

// Any bits at all, as a type's elements: also what is not finite.
template <class Element>
std::vector<Element> any_bits(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Element> out(n);
  for (Element& e : out) e = static_cast<Element>(random());
  return out;
}

template <class T, class Bits>
std::vector<Bits> bits_of_normal(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<T> normal;
  std::vector<Bits> out(n);
  for (Bits& e : out) e = std::bit_cast<Bits>(normal(random));
  return out;
}

template <class T, class Bits>
std::vector<T> as(const std::vector<Bits>& bits) {
  std::vector<T> out;
  for (const Bits b : bits) out.push_back(std::bit_cast<T>(b));
  return out;
}

// Sizes and first places that leave threads, lanes of a group, and blocks with nothing to do.
constexpr std::size_t kSizes[] = {0, 1, 7, 8, 9, 255, 2048, 2049, 20000};
constexpr std::uint64_t kFirsts[] = {0, 1, 8, 12345, std::uint64_t{1} << 40U};
constexpr unsigned kBlocks[] = {1, 2, 5, 300};

TEST(FingerprintKernel, GivesTheHostsFingerprintOfFloats) {
  for (const std::size_t n : kSizes) {
    for (const std::uint64_t first : kFirsts) {
      const auto bits = bits_of_normal<float, unsigned>(n, n);
      const trace::Fingerprint host = on_host(as<float>(bits), first);
      for (const unsigned blocks : kBlocks) {
        expect_same(launch(fingerprinting::fingerprint_float32, bits, first, blocks), host);
      }
    }
  }
}

TEST(FingerprintKernel, GivesTheHostsFingerprintOfDoubles) {
  const auto bits = bits_of_normal<double, Word>(5000, 1);
  expect_same(launch(fingerprinting::fingerprint_float64, bits, 3, 4),
              on_host(as<double>(bits), 3));
}

TEST(FingerprintKernel, SeesWhatIsNotFiniteAsTheHostDoes) {
  auto bits = any_bits<unsigned>(5000, 2);
  bits[7] = 0x7F800000U;   // infinity
  bits[8] = 0xFF800001U;   // a signalling NaN
  bits[9] = 0x80000000U;   // -0
  bits[10] = 0x00000001U;  // the least subnormal
  const trace::Fingerprint host = on_host(as<float>(bits), 0);
  ASSERT_GE(host.non_finite, 2U);
  expect_same(launch(fingerprinting::fingerprint_float32, bits, 0, 3), host);
}

TEST(FingerprintKernel, TakesIntegersAsDoubles) {
  const auto values = any_bits<long long>(3000, 3);  // also those that no double holds
  expect_same(launch(fingerprinting::fingerprint_int64, values, 5, 2),
              on_host(std::vector<double>(values.begin(), values.end()), 5));
  const auto bytes = any_bits<signed char>(1000, 4);
  expect_same(launch(fingerprinting::fingerprint_int8, bytes, 0, 1),
              on_host(std::vector<double>(bytes.begin(), bytes.end()), 0));
  const auto flags = any_bits<unsigned char>(1000, 5);
  expect_same(launch(fingerprinting::fingerprint_uint8, flags, 0, 1),
              on_host(std::vector<double>(flags.begin(), flags.end()), 0));
}

// The value of a half, by the format's definition.
float half_value(unsigned bits) {
  const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
  const int exponent = static_cast<int>(bits >> 10U & 0x1FU);
  const int fraction = static_cast<int>(bits & 0x3FFU);
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : static_cast<float>(sign) * std::numeric_limits<float>::infinity();
  }
  const double size =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return static_cast<float>(sign * size);
}

TEST(FingerprintKernel, TakesHalvesAsTheFloatsThatTheyAre) {
  std::vector<unsigned short> halves;
  std::vector<float> floats;
  for (unsigned bits = 0; bits <= 0xFFFFU; ++bits) {
    halves.push_back(static_cast<unsigned short>(bits));
    floats.push_back(half_value(bits));
  }
  expect_same(launch(fingerprinting::fingerprint_float16, halves, 0, 7), on_host(floats, 0));
  for (unsigned bits = 0; bits <= 0xFFFFU; ++bits) {
    floats[bits] = std::bit_cast<float>(bits << 16U);
  }
  floats[0xFF80] = -std::numeric_limits<float>::infinity();
  const auto finite = [](unsigned short b) { return (b & 0x7F80U) != 0x7F80U; };
  // Without the largest, whose squares leave nothing of the others.
  std::vector<unsigned short> some;
  std::vector<float> as_floats;
  for (const unsigned short b : halves) {
    if (finite(b) && std::abs(floats[b]) > 1e6F) continue;
    some.push_back(b);
    as_floats.push_back(floats[b]);
  }
  expect_same(launch(fingerprinting::fingerprint_bfloat16, some, 0, 7), on_host(as_floats, 0));
}

TEST(FingerprintKernel, LeavesTheSameBitsEveryTime) {
  const auto bits = bits_of_normal<float, unsigned>(30000, 6);
  EXPECT_EQ(launch(fingerprinting::fingerprint_float32, bits, 0, 6),
            launch(fingerprinting::fingerprint_float32, bits, 0, 6));
}

TEST(FingerprintKernel, ABlockIsWorthItsElementsAndADeviceHasOnlySoMany) {
  EXPECT_EQ(fingerprint_blocks(0, 132), 1U);
  EXPECT_EQ(fingerprint_blocks(8192, 132), 1U);
  EXPECT_EQ(fingerprint_blocks(8193, 132), 2U);
  EXPECT_EQ(fingerprint_blocks(std::uint64_t{1} << 40U, 132), 264U);
  EXPECT_EQ(fingerprint_blocks(std::uint64_t{1} << 40U, 0), 2U);
}

}  // namespace
}  // namespace lockstep::runtime
