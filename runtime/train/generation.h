// Generation: every rank continues its own texts, token by token.
//
// Each token is a forward of the text encoder, for which a sharded model is gathered. A rank whose
// texts have ended stops calling, and the others wait in their all-gathers; unless all ranks go on
// until the last has ended (`synced_gpus` of Hugging Face's generate()).
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/groups/process_groups.h"
#include "runtime/models/contrastive.h"
#include "runtime/record/recorder.h"
#include "runtime/strategies/strategy.h"

namespace lockstep::runtime {

struct TokenLimits {
  int own = 0;   // tokens after which this rank's texts end
  int most = 0;  // of all ranks; only a rank that runs alone reads it, as it cannot ask the others
};

// Continues `prompt` [n, t] by the most likely tokens, in evaluation mode and without gradients.
// Returns [n, t + tokens]. `synced`: an all-reduce before each token asks whether any rank goes on;
// after its own end a rank runs the model and throws the result away. Collective, if `strategy`
// shards or with `synced`. Throws what c10d throws.
at::Tensor generate_texts(ContrastiveModel& model, Strategy& strategy, ProcessGroups& groups,
                          Recorder& recorder, const at::Tensor& prompt, TokenLimits limits,
                          bool synced);

}  // namespace lockstep::runtime
