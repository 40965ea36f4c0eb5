#include "runtime/device/fingerprint_kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace lockstep::runtime {

KernelText fingerprint_kernel() {
  const std::span<const EmbeddedFile> files = fingerprint_kernel_files();
  KernelText out{files.front().path.data(), files.front().text.data(), {}};
  for (const EmbeddedFile& header : files.subspan(1))
    out.headers.push_back({header.path.data(), header.text.data()});
  return out;
}

unsigned fingerprint_blocks(std::uint64_t elements, unsigned multiprocessors) {
  constexpr std::uint64_t kElements = kFingerprintThreads * 8 * 4;  // of a block, at least
  const std::uint64_t most = 2ULL * std::max(1U, multiprocessors);
  return static_cast<unsigned>(
      std::clamp<std::uint64_t>((elements + kElements - 1) / kElements, 1, most));
}

trace::Fingerprint fingerprint_of(const fingerprinting::KernelSums& sums, std::uint64_t elements,
                                  std::uint32_t k) {
  LOCKSTEP_CHECK(k <= trace::kSketchValues, "a sketch of that many values");
  trace::Fingerprint out;
  out.hash = trace::fingerprinting::whole_hash(sums.hash, elements);
  out.norm = std::sqrt(sums.squares);
  out.non_finite = sums.non_finite;
  if (sums.lowest <= sums.highest) {
    out.min = std::bit_cast<double>(trace::fingerprinting::bits_of_key(sums.lowest));
    out.max = std::bit_cast<double>(trace::fingerprinting::bits_of_key(sums.highest));
  }
  out.sketch.assign(sums.sketch, sums.sketch + k);
  return out;
}

}  // namespace lockstep::runtime
