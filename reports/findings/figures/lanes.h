// Draws a finding's LaneTable in a terminal: the small picture of what each rank called around the
// difference.
//
//     group world   seq 5         seq 6           seq 7
//     ranks 0,2,3   all_reduce    all_reduce      all_reduce
//                   head.weight   text.weight +1  image_proj.weight +1
//                                                 WAITS
//     rank 1        all_reduce    all_reduce    ! all_reduce
//                   head.weight   text.weight +1  head.weight
//                                                 WAITS
#pragma once

#include <cstddef>
#include <string>

#include "base/terminal.h"
#include "trace/run.h"
#include "verify/report.h"

namespace lockstep::reports {

struct LaneOptions {
  std::size_t width = 80;  // columns, including the indentation
  std::size_t indent = 4;
  std::size_t max_rows = 8;  // kinds of ranks; culprits come first if there are more
  Paint paint;
};

// Lines, each ending in a line break; empty if there is nothing to draw. A call that differs from
// the majority's is marked "!"; long names are shortened in the middle.
std::string lanes(const verify::Finding& finding, const trace::Run& run,
                  const LaneOptions& options = {});

}  // namespace lockstep::reports
