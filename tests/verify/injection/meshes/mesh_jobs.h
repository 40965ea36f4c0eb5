// Healthy programs on a mesh of ranks: tensor-, data-, pipeline- and expert-parallel groups at
// once, so that each rank works in several communicators, beside sister groups that do the same.
// All ranks call in an order that suits all, whatever keeps whose kernels from running.
#pragma once

#include "tests/verify/injection/job.h"

namespace lockstep::verify::injection {

// Of 2 to `largest` ranks (a power of two; at most 64), mostly of few.
Job mesh_job(int largest, Random& random);

// "dp_3" and "dp_0" are sisters: groups of one dimension.
std::string dimension(const std::string& group);

}  // namespace lockstep::verify::injection
