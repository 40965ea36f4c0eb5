// Healthy programs of the shapes that training jobs have: every rank can finish, whatever the
// schedule.
#pragma once

#include "tests/verify/injection/job.h"

namespace lockstep::verify::injection {

enum class Shape {
  ddp_buckets,    // asynchronous all-reduces of buckets, waited for at the end of backward
  per_parameter,  // a blocking all-reduce per parameter
  fully_sharded,  // all-gather before, reduce-scatter after each block
  dp_by_tp,       // two dimensions: tensor-parallel rows, data-parallel columns
  two_groups,     // two groups of all ranks, blocking calls in turn
  pipeline,       // micro-batches by send and recv, forward then backward
  ring,           // neighbours exchange, even ranks send first
  experts,        // all-to-all with uneven splits
  mixed,          // buckets, a blocking loss, now and then a broadcast and a barrier
};
inline constexpr Shape kShapes[] = {Shape::ddp_buckets, Shape::per_parameter, Shape::fully_sharded,
                                    Shape::dp_by_tp,    Shape::two_groups,    Shape::pipeline,
                                    Shape::ring,        Shape::experts,       Shape::mixed};
Shape any_shape(Random& random);

Job healthy_job(Shape shape, Random& random);

}  // namespace lockstep::verify::injection
