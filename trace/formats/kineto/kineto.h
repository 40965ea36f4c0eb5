// Profiles of torch.profiler: the Chrome traces that Kineto writes (`*.pt.trace.json`), one file
// per rank.
//
// What is taken: every `record_param_comms` event of the host (the call of a collective, in program
// order), the `ProfilerStep#N` ranges (training steps), the NCCL kernels that name the same
// "External id" (when the device began and finished), and "distributedInfo" (whose profile it is,
// the process groups). Where the host was not profiled, the kernels' order stands for the calls'.
//
// Sources: pytorch/kineto libkineto/src/output_json.cpp, pytorch torch/csrc/profiler/util.cpp
// (saveNcclMeta) and ProcessGroupNCCL.cpp; written by PyTorch 2.3 and later ("Seq" since 2026).
// "Rank" is the root's group rank for rooted operations, "Src Rank" and "Dst Rank" are global. A
// list of ranks that is abbreviated (more than 30) is not taken as a list of members.
//
// A profile is a window of the run. `link` cuts the windows of all ranks to the steps that they
// have in common; where the sequence numbers are recorded, these line them up too.
//
// Cost: the file is walked once without parsing; only the events that matter are parsed, one at a
// time. Memory: at most kKinetoMemoryFactor times the file's size, typically a hundredth.
#pragma once

#include <cstddef>

#include "trace/formats/format.h"

namespace lockstep::trace {

inline constexpr std::size_t kKinetoMemoryFactor = 12;

Format kineto_format();

}  // namespace lockstep::trace
