#include "runtime/train/generation.h"

#include <ATen/ATen.h>

#include "runtime/groups/collectives.h"
#include "runtime/record/c10d/host_read.h"

namespace lockstep::runtime {
namespace {

bool any_rank_goes_on(ProcessGroups& groups, Recorder& recorder, bool own) {
  const at::Tensor goes_on = at::full({1}, own ? 1 : 0, at::kInt);
  {
    const NoteScope scope(recorder, recorder.note({"unfinished"}, "generate.unfinished"));
    all_reduce(*groups.world(), goes_on, Reduce::max);
  }
  const HostRead reading(recorder, goes_on);
  return goes_on.item<int>() != 0;
}

}  // namespace

at::Tensor generate_texts(ContrastiveModel& model, Strategy& strategy, ProcessGroups& groups,
                          Recorder& recorder, const at::Tensor& prompt, TokenLimits limits,
                          bool synced) {
  const at::NoGradGuard no_grad;
  model->eval();
  strategy.begin_inference();
  at::Tensor texts = prompt;
  for (int made = 0;; ++made) {
    bool goes_on = made < limits.own;
    if (synced) {
      const bool any = any_rank_goes_on(groups, recorder, goes_on);
      goes_on = groups.alone() ? made < limits.most : any;
    }
    if (!goes_on) break;
    const at::Tensor next = model->next_tokens(texts);
    if (made < limits.own) texts = at::cat({texts, next}, 1);
  }
  strategy.end_inference();
  model->train();
  return texts;
}

}  // namespace lockstep::runtime
