// What libraries write behind an exception, and what belongs to it: it is added to its note.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "trace/evidence/log_notes.h"
#include "trace/ids.h"
#include "trace/run.h"

namespace lockstep::trace {

// Of NCCL: "Last error:", and on the next line what failed. `text`: that line.
inline constexpr std::string_view kLastError = "Last error:";
void add_last_error(RankNote& exception, std::string_view text);

// Of Huawei's collectives (HCCL): "EI0002: … The wait execution of the Notify register times out",
// in newer versions "[PID: 2969] … Communication_Error_Timeout(EI0002): …"; the device that HCCL
// says is abnormal; and "[ERROR] 2025-10-11-15:09:34 (PID:2969, Device:0, RankID:101) ERR00100 …",
// which names the rank. False: the line is none of these.
inline constexpr std::string_view kOfHccl = "EI00";
inline constexpr std::string_view kRankOfAscend = ", RankID:";
bool add_hccl_error(RankNote& exception, std::string_view text);

// Of FullyShardedDataParallel, whose lists of parameters may be longer than what a note keeps:
// "Forward order differs across ranks: rank 0 is all-gathering parameters for [[…]] while rank 2
// …" with both ranks. Any other exception as it is.
std::string told_exception(std::string_view exception);

// What another rank raised, by a rank's exception that tells it (torch.distributed.checkpoint):
// "; rank 3: OSError: [Errno 28] No space left on device".
void add_other_ranks(RankNote& exception, Rank rank, std::string_view raised);

// Of Hugging Face's Accelerate, in its debug mode: the operation, and "  - Process 2: [1, 2, 5]".
// Adds process 0's shape and those that differ from it, "; accelerate.utils.operations.gather:
// Process 0: [1, 5], Process 2: [1, 2, 5]"; where they are too many, the text ends in an ellipsis.
// False: the line is none of these, or the exception no such one.
bool note_process_shape(RankNote& exception, std::string_view text);

// Of FullyShardedDataParallel: "Forward order differs from that of the first iteration on rank 3.
// …", a warning, and on the next line which parameters. Says::changed_order.
class OrderWarnings {
 public:
  static constexpr std::string_view kSign = "Forward order differs from that of the first";
  static constexpr std::string_view kWhich = "all-gather parameters for";

  // False: the line says nothing of the kind. `rank`: whose output it is, if that is known.
  bool take(std::string_view text, Rank rank, LogNotes& notes);

 private:
  // The warning whose next line is to come, by whose output it is: an index in the notes; nothing
  // where several are open.
  std::map<Rank, std::optional<std::size_t>> open_;
};

// Of DistributedDataParallel: the parameters' names, if TORCH_DISTRIBUTED_DEBUG is set, and their
// numbers: "Parameter indices which did not receive grad for rank 2: 6 7". Processes whose output
// is mixed write several, each for its rank.
class UnusedParameters {
 public:
  static constexpr std::string_view kSign = "did not receive grad for rank ";

  // A note was added about the rank: where it is such an exception, lines about it may follow.
  void remember(const RankNote& note, std::size_t index);
  // Adds what the line says to the rank's last such exception; where there is none, to a new note.
  // `rank`: whose output the line is, if that is known. False: the line says nothing of the kind.
  bool take(std::string_view text, Rank rank, LogNotes& notes);

 private:
  std::optional<std::size_t> note_about(Rank rank, LogNotes& notes);

  std::multimap<Rank, std::size_t> noted_;  // the exceptions, as indices in the notes
};

}  // namespace lockstep::trace
