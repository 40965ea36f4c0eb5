// Runs a Job as ranks with devices do (NCCL): the host only enqueues, the devices work through
// their streams, and a recorder on each rank notes how far every call got.
//
// Each rank has a stream per group, and one per pair of ranks for messages that are not posted as a
// batch. A kernel, which is one call or a batch of messages, begins when those before it in its
// stream are done and when everything is done that the compute stream waits for: every earlier call
// that is not asynchronous, and every earlier wait. A collective completes when all members began
// it; a message when both sides did. Events happen by a clock that all ranks share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/verify/injection/job.h"

namespace lockstep::verify::injection {

struct DeviceBehaviour {
  bool silent = false;       // calls that do not fit complete with garbage; else they hang
  bool eager_sends = false;  // sends complete without the other side
  bool host_blocks = false;  // the host waits where the compute stream does
  bool syncs_steps = true;   // the host waits for the compute stream at the end of each step
  // Kernels of one device keep each other from running: in the order of their calls.
  bool one_at_a_time = false;
  int run_ahead = 20;  // unfinished calls of a rank before its host waits
  // Stop after that many host actions of all ranks: a look at a job under way. kUnset: to the end.
  int stop_after = kUnset;
  // … after that many actions of a rank that was late.
  int stop_after_late = kUnset;
};

// A call as the rank's recorder has it.
struct Entry {
  enum class State { scheduled, started, completed };
  std::int64_t record = 0;  // counts the rank's calls from 0
  CallSpec call;
  bool point_to_point = false;
  std::int64_t collective_seq = 0, p2p_seq = 0;  // both as they stood, from 1
  State state = State::scheduled;
  bool ends_batch = false;  // the last of the messages that were posted together
  // Nanoseconds of the common clock. 0: it did not happen.
  std::int64_t created_at = 0, started_at = 0, completed_at = 0;
};

// What the rank's host did, in its order.
struct HostEvent {
  const Action* action = nullptr;  // in the job
  std::int64_t time = 0;
  std::size_t entry = 0;  // of an issue or a wait: the call's number among the rank's entries
};

struct RankOutcome {
  std::vector<Entry> entries;
  std::vector<HostEvent> events;
  bool dumped = true;  // the process was there to write its dump
  std::string end;     // as a trace has it: "clean", "hung", "exception"; empty: none was written
};

struct DeviceOutcome {
  std::vector<RankOutcome> ranks;
  bool hung = false;          // some rank did not get through
  bool stopped = false;       // by DeviceBehaviour
  std::int64_t ended_at = 0;  // when nothing happened any more, or it was stopped
};

DeviceOutcome execute_on_devices(const Job& job, const DeviceBehaviour& behaviour, Random& random);

}  // namespace lockstep::verify::injection
