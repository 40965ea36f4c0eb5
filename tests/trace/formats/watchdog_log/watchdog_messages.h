// Messages of PyTorch's NCCL watchdog, as it writes them into a job's output.
#pragma once

#include <string>

#include <fmt/format.h>

#include "tests/trace/formats/format_testing.h"
#include "trace/formats/format.h"

namespace lockstep::trace {

// What PyTorch writes before each message of a rank.
inline std::string prefix(int rank) {
  return fmt::format("[rank{}]:[E709 17:05:38.162555850 ProcessGroupNCCL.cpp:632] ", rank);
}

// The two lines of PyTorch 2.5 and later for a call that timed out.
inline std::string timed_out(int rank, int seq, const std::string& op, int in, int enqueued,
                             int completed,
                             const std::string& group = "PG ID 0 PG GUID 0(default_pg)",
                             int group_rank = -1) {
  const std::string own = std::to_string(group_rank < 0 ? rank : group_rank);
  return fmt::format(
      "{}[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, OpType={}, "
      "NumelIn={}, NumelOut={}, Timeout(ms)=600000) ran for 600000 milliseconds before timing "
      "out.\n{}[{} Rank {}]  failure detected by watchdog at work sequence id: {} PG status: last "
      "enqueued work: {}, last completed work: {}\n",
      prefix(rank), own, seq, op, in, in, prefix(rank), group, own, seq, enqueued, completed);
}

// What a rank writes that others told to dump.
inline std::string told_to_dump(int rank, int enqueued, int completed) {
  return fmt::format(
      "{}[PG ID 0 PG GUID 0(default_pg) Rank {}] Received a dump signal due to a collective "
      "timeout from rank 0 and we will try our best to dump the debug info. Last enqueued NCCL "
      "work: {}, last completed NCCL work: {}.This is most likely caused by incorrect usages of "
      "collectives, e.g., wrong sizes used across ranks\n",
      prefix(rank), rank, enqueued, completed);
}

// The run that a log with these messages, and other lines, tells of.
inline Run run_of_log(const std::string& text) {
  return run_of(watchdog_log_format(), {{"train.out", "Epoch 1: 100%|####| 3/3\r" + text}});
}

}  // namespace lockstep::trace
