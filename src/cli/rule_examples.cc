#include "cli/rule_examples.h"

namespace lockstep {

std::string_view rule_example(RuleId id) {
  switch (id) {
    case RuleId::op_mismatch:
      return "  rank 0   all_reduce(a)   all_reduce(b)\n"
             "  rank 1   all_reduce(a)   broadcast(b)      if rank == 1: broadcast(b)\n";
    case RuleId::missing_collective:
      return "  rank 0   all_reduce(a)   all_reduce(b)   all_reduce(c)\n"
             "  rank 1   all_reduce(a)   all_reduce(c)     if b.grad is None: skip it\n";
    case RuleId::extra_collective:
      return "  rank 0   all_reduce(a)   all_reduce(loss)   all_reduce(b)\n"
             "  rank 1   all_reduce(a)   all_reduce(b)      if rank == 0: log(loss)\n";
    case RuleId::size_mismatch:
      return "  rank 0   all_reduce(4096 elements)\n"
             "  rank 1   all_reduce(4000 elements)         a shorter last batch\n";
    case RuleId::dtype_mismatch:
      return "  rank 0   all_reduce(1024 float32)\n"
             "  rank 1   all_reduce(1024 bfloat16)         autocast on one rank only\n";
    case RuleId::redop_mismatch:
      return "  rank 0   all_reduce(loss, sum)\n"
             "  rank 1   all_reduce(loss, max)\n";
    case RuleId::root_mismatch:
      return "  rank 0   broadcast(a, src=0)\n"
             "  rank 1   broadcast(a, src=1)               group rank passed for a global rank\n";
    case RuleId::splits_mismatch:
      return "  rank 0   all_to_all_single(sends 3 rows to rank 1)\n"
             "  rank 1   all_to_all_single(expects 2 rows from rank 0)\n";
    case RuleId::group_divergence:
      return "  rank 0   new_group([0, 1])\n"
             "  rank 1   new_group([0, 1, 2])              the same name, other members\n";
    case RuleId::order_swap:
      return "  rank 0   all_reduce(a)   all_reduce(b)\n"
             "  rank 1   all_reduce(b)   all_reduce(a)     for p in set(parameters): ...\n";
    case RuleId::identity_mismatch:
      return "  rank 0   all_reduce(image.weight, 1024)\n"
             "  rank 1   all_reduce(text.weight, 1024)     equal sizes: no hang, but both\n"
             "                                             are summed and train on garbage\n";
    case RuleId::deadlock:
      return "  rank 0   waits in all_reduce(a) for rank 1\n"
             "  rank 1   waits in barrier() of another place for rank 0\n";
    case RuleId::cross_group_deadlock:
      return "  rank 0   all_reduce(a, group=tp)   all_reduce(b, group=dp)\n"
             "  rank 1   all_reduce(b, group=dp)   all_reduce(a, group=tp)\n";
    case RuleId::p2p_unmatched:
      return "  rank 0   send(activation, dst=1, tag=7)\n"
             "  rank 1   returns from its schedule one micro-batch early\n";
    case RuleId::p2p_cycle:
      return "  rank 0   send(x, dst=1)   recv(y, src=1)\n"
             "  rank 1   send(y, dst=0)   recv(x, src=0)   both wait for the other's recv\n";
    case RuleId::p2p_size:
      return "  rank 0   send(512 float32, dst=1)\n"
             "  rank 1   recv(768 float32, src=0)\n";
    case RuleId::host_stall:
      return "  rank 0   all_reduce(a)   all_reduce(b)     waits\n"
             "  rank 1   all_reduce(a)                     hangs in its data loader\n";
    case RuleId::device_stall:
      return "  rank 0   all_reduce(a): issued, complete\n"
             "  rank 1   all_reduce(a): issued, started, never complete\n";
    case RuleId::rank_exception:
      return "  rank 0   all_reduce(a)   all_reduce(b)     waits\n"
             "  rank 1   all_reduce(a)                     RuntimeError: CUDA out of memory\n";
    case RuleId::unequal_iterations:
      return "  rank 0   step 0   step 1   step 2          101 samples, batches of 50\n"
             "  rank 1   step 0   step 1   (ended)         100 samples, batches of 50\n";
    case RuleId::never_waited:
      return "  work = dist.all_reduce(a, async_op=True)\n"
             "  loss = a.sum()                             no work.wait() before\n";
    case RuleId::buffer_race:
      return "  rank 0   work = isend(x, dst=1)   x.zero_()   work.wait()\n"
             "           rank 1 gets the old values, or zeros, or some of both\n";
    case RuleId::wildcard_race:
      return "  rank 0   recv(src=ANY)   recv(src=1)      hangs if the first takes rank 1's\n"
             "  rank 1   send(dst=0)\n"
             "  rank 2   send(dst=0)\n";
    case RuleId::modality_divergence:
      return "  rank 0   batch {image, text}   all_reduce(text.w)   all_reduce(image.w)  waits\n"
             "  rank 1   batch {text}          all_reduce(text.w)   image.w has no gradient\n";
    case RuleId::unused_parameter:
      return "  rank 1, step 4: text only, so that DDP's bucket with image.w stays open\n"
             "  rank 1, step 5: \"Expected to have finished reduction in the prior iteration\"\n";
    case RuleId::dead_remedy:
      return "  dummy = image_encoder(zeros)               computed ...\n"
             "  loss = text_loss                           ... and forgotten\n"
             "  loss = text_loss + 0 * dummy.sum()         right\n";
    case RuleId::missing_rank:
      return "  rank_0.trace.jsonl  rank_2.trace.jsonl     world_size is 3\n";
    case RuleId::damaged_trace:
      return "  {\"ev\":\"issue\",\"id\":17,\"g\":\"wor           the file ends here\n";
    case RuleId::inconsistent_header:
      return "  rank_0.trace.jsonl says world_size 4, rank_1.trace.jsonl says 8\n";
  }
  return "";
}

}  // namespace lockstep
