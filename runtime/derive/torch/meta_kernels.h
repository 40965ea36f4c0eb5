// Meta kernels that LibTorch has in Python only.
#pragma once

namespace lockstep {

// For the whole process; does nothing from the second time on. Before the first meta tensor.
void register_meta_kernels();

}  // namespace lockstep
