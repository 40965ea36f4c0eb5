// What a fingerprint costs per element, by each method that this processor has, beside the loop
// that one would write first. Both in turns, so that what else the machine does slows both:
// "faster" is the ratio of the least times.
#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "trace/values/fingerprint.h"
#include "trace/values/fingerprint_arithmetic.h"

namespace lockstep {
namespace {

template <class T>
std::vector<T> normal_values(std::size_t n) {
  std::mt19937 random(1);
  std::normal_distribution<T> normal;
  std::vector<T> out(n);
  for (T& x : out) x = normal(random);
  return out;
}

// The baseline: hash, norm, range and sketch in one loop over the elements, eight sums each.
template <class T>
class FirstLoop {
 public:
  void add(std::span<const T> values) {
    using trace::fingerprinting::Word;
    using Bits = std::conditional_t<sizeof(T) == 4, unsigned, Word>;
    Word word = 0;
    std::array<double, trace::kSketchValues> sums{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i % 8 == 0) word = trace::fingerprinting::sign_word(i);
      T value = values[i] == T{0} ? T{0} : values[i];
      if (std::isnan(value)) value = std::numeric_limits<T>::quiet_NaN();
      hash_ += trace::fingerprinting::hash_term(std::bit_cast<Bits>(value), i);
      if (!std::isfinite(value)) {
        ++non_finite_;
        continue;
      }
      const auto x = static_cast<double>(value);
      squares_ += x * x;
      min_ = std::min(min_, x);
      max_ = std::max(max_, x);
      const auto& signs = kSigns[trace::fingerprinting::sign_byte(word, i)];
      for (std::size_t j = 0; j < trace::kSketchValues; ++j) sums[j] += x * signs[j];
    }
    for (std::size_t j = 0; j < trace::kSketchValues; ++j) sums_[j] += sums[j];
  }

 private:
  using Signs = std::array<double, trace::kSketchValues>;
  static constexpr std::array<Signs, 256> make_signs() {
    std::array<Signs, 256> out{};
    for (unsigned byte = 0; byte < 256; ++byte) {
      for (unsigned j = 0; j < trace::kSketchValues; ++j)
        out[byte][j] = (byte >> j & 1U) != 0 ? -1 : 1;
    }
    return out;
  }
  static constexpr std::array<Signs, 256> kSigns = make_signs();

  std::uint64_t hash_ = 0, non_finite_ = 0;
  double squares_ = 0, min_ = 0, max_ = 0;
  Signs sums_{};
};

template <class Body>
double seconds(Body body) {
  const auto began = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

template <class T>
void fingerprint(benchmark::State& state) {
  const auto methods = trace::fingerprint_methods();
  const auto which = static_cast<std::size_t>(state.range(0));
  if (which >= methods.size())
    return state.SkipWithError("this processor does not have this method");
  const std::vector<T> values = normal_values<T>(static_cast<std::size_t>(state.range(1)));
  double least = std::numeric_limits<double>::infinity();
  double least_first = least;
  for (auto _ : state) {
    const double taken = seconds([&] {
      trace::Fingerprinter f(trace::kSketchValues, methods[which]);
      f.add(std::span<const T>(values), 0);
      benchmark::DoNotOptimize(f.finish());
    });
    least = std::min(least, taken);
    least_first = std::min(least_first, seconds([&] {
                             FirstLoop<T> f;
                             f.add(values);
                             benchmark::DoNotOptimize(f);
                           }));
    state.SetIterationTime(taken);
  }
  state.SetLabel(methods[which].name);
  state.SetItemsProcessed(state.iterations() * state.range(1));
  const auto elements = static_cast<double>(values.size());
  state.counters["ns_per_element"] = least * 1e9 / elements;
  state.counters["first_loop_ns"] = least_first * 1e9 / elements;
  state.counters["faster"] = least_first / least;
}
BENCHMARK(fingerprint<float>)->ArgsProduct({{0, 1, 2}, {64, 1 << 16}})->UseManualTime();
BENCHMARK(fingerprint<double>)->ArgsProduct({{0, 1, 2}, {64, 1 << 16}})->UseManualTime();

}  // namespace
}  // namespace lockstep
