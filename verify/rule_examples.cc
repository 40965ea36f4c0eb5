#include "verify/rule_examples.h"

namespace lockstep::verify {

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
    case RuleId::step_mismatch:
      return "  rank 0   step 1: all_reduce(w)   step 2: all_reduce(w)\n"
             "  rank 1   step 2: all_reduce(w)   step 3: all_reduce(w)   skipped a batch\n";
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
    case RuleId::dummy_dilution:
      return "  rank 0   image.grad 0.8     averaged: (0.8 + 0) / 2 = 0.4\n"
             "  rank 1   image.grad 0       its batch held text only\n";
    case RuleId::decayed_unused:
      return "  step 7   image.grad 0 on all ranks\n"
             "           image.weight changes        AdamW(weight_decay=0.01) shrinks it\n";
    case RuleId::param_divergence:
      return "  rank 0   after step 4: fc.weight a93c6ee8\n"
             "  rank 1   after step 4: fc.weight 51f02b77   equal until step 3\n";
    case RuleId::grad_divergence:
      return "  rank 0   all_reduce(fc.grad)   fc.grad 0.31\n"
             "  rank 1   all_reduce(fc.grad)   fc.grad 0.31 -> 0.93   changed afterwards\n";
    case RuleId::buffer_divergence:
      return "  rank 0   bn1.running_mean 0.12\n"
             "  rank 1   bn1.running_mean 0.15    broadcast_buffers=False\n";
    case RuleId::reduction_wrong:
      return "  rank 0   grad 0.2   all_reduce(sum)   grad 0.6   the mean would be 0.3\n"
             "  rank 1   grad 0.4   all_reduce(sum)   grad 0.6\n";
    case RuleId::unsynchronised_step:
      return "  rank 0   backward   optimizer.step()      with model.no_sync(): …\n"
             "  rank 1   backward   optimizer.step()      each with its own gradient\n";
    case RuleId::rank_local_decision:
      return "  rank 0   grads finite here    optimizer.step()\n"
             "  rank 1   inf in its grads     skips the step\n";
    case RuleId::stale_gradient:
      return "  step 1   grad g1   step()\n"
             "  step 2   grad g1 + g2   step()            no zero_grad() between them\n";
    case RuleId::no_sharding:
      return "  rank 0   samples 17, 4, 9, 12\n"
             "  rank 1   samples 17, 4, 9, 12             shuffle=True, no sampler\n";
    case RuleId::no_reshuffle:
      return "  epoch 0  samples 17, 4, 9, 12, …\n"
             "  epoch 1  samples 17, 4, 9, 12, …          no sampler.set_epoch(epoch)\n";
    case RuleId::index_misaligned:
      return "  image loader   samples 5, 6, 7, 8\n"
             "  text loader    samples 6, 7, 8, 9         one item dropped by one of them\n";
    case RuleId::overlap:
      return "  rank 0   samples 17, 4, 9, 12             seed 0\n"
             "  rank 1   samples 3, 17, 8, 4              seed 1\n";
    case RuleId::broadcast_as_sync:
      return "  rank 0   reads samples 17, 4   broadcast(batch)\n"
             "  rank 1                         broadcast(batch)   trains on 17, 4 as well\n";
    case RuleId::missing_rank:
      return "  rank_0.trace.jsonl  rank_2.trace.jsonl     world_size is 3\n";
    case RuleId::damaged_trace:
      return "  {\"ev\":\"issue\",\"id\":17,\"g\":\"wor           the file ends here\n";
    case RuleId::rank_killed:
      return "  rank 0   all_reduce(a)   step 1   killed    scancel, or no memory left\n"
             "  rank 1   all_reduce(a)   step 1   killed\n";
    case RuleId::inconsistent_header:
      return "  rank_0.trace.jsonl says world_size 4, rank_1.trace.jsonl says 8\n";
    case RuleId::job_evidence:
      return "  rank_3.trace.jsonl ends with {\"end\":\"clean\"}\n"
             "  rank_3.log           torch.OutOfMemoryError: CUDA out of memory.\n";
  }
  return "";
}

}  // namespace lockstep::verify
