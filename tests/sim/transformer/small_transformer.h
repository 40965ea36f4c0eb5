// The transformer of most tests of training plans: eight layers of width 2048.
#pragma once

#include "sim/transformer/transformer.h"

namespace lockstep::sim {

inline Transformer small_transformer() {
  Transformer out;
  out.layers = 8;
  out.hidden = 2048;
  out.heads = out.kv_heads = 16;
  out.ffn = 8192;
  out.vocabulary = 51200;
  return out;
}

}  // namespace lockstep::sim
