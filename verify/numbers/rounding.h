// How far floating-point rounding alone may take a reduction from the exact one.
//
// A mean of W terms in any order costs at most W roundings on each element (W - 1 sums and a
// division), so that each is off by at most gamma(W) times the mean of the terms' sizes, gamma(m) =
// m u / (1 - m u), u the unit roundoff of the type (Higham, Accuracy and Stability of Numerical
// Algorithms, 2002, section 3.1). A sketch adds the elements up with signs that do not depend on
// them; by Hoeffding's inequality (1963) such a sum of errors e is larger than
// |e| sqrt(2 ln(2/p)) with probability at most p. So the bound follows from the type, the number of
// ranks and the norms, without any tuned constant.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::verify {

// u of float32, assumed where a trace does not record the type.
inline constexpr double kFloat32Roundoff = 0x1p-24;

// u of a dtype by its PyTorch name ("float32", "bfloat16", …); 0 for integers; nothing for others.
std::optional<double> unit_roundoff(std::string_view dtype);

// An upper bound of a sketch's error when `terms` tensors, whose 2-norms add up to `norms`, are
// added in a type with this unit roundoff. Exceeded by chance once in 10^12 cases.
double rounding_bound(std::uint64_t terms, double roundoff, double norms);

// The relative difference that the order of summation may make to the 2-norm of a
// tensor with this many elements, summed in float32.
double norm_tolerance(std::int64_t elements);

}  // namespace lockstep::verify
