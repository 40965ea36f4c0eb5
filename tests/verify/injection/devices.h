// Runs a Job as ranks with devices do (NCCL): the host only enqueues, the devices work through
// their queues, and a recorder on each rank notes how far every call got.
//
// Each rank has a queue per group and per pair of ranks; a call begins when those before it in its
// queue are done, and when everything is done that the compute stream waits for: every earlier call
// that is not asynchronous, and every earlier wait. A collective completes when all members began
// it; a message when both sides did.
#pragma once

#include <cstdint>
#include <vector>

#include "verify/injection/job.h"

namespace lockstep::injection {

struct DeviceBehaviour {
  bool silent = false;       // calls that do not fit complete with garbage; else they hang
  bool eager_sends = false;  // sends complete without the other side
  bool host_blocks = false;  // the host waits where the compute stream does
  bool syncs_steps = true;   // the host waits at the end of each step
  int run_ahead = 20;        // unfinished calls of a rank before its host waits
  // Stop after that many host actions of all ranks: a look at a job under way. kUnset: to the end.
  int stop_after = kUnset;
};

// A call as the rank's recorder has it.
struct Entry {
  enum class State { scheduled, started, completed };
  std::int64_t record = 0;  // counts the rank's calls from 0
  CallSpec call;
  bool point_to_point = false;
  std::int64_t collective_seq = 0, p2p_seq = 0;  // both as they stood, from 1
  State state = State::scheduled;
  // By a clock that all ranks share: it counts what happens anywhere. 0: it did not happen.
  std::int64_t created_at = 0, started_at = 0, completed_at = 0;
};

struct DeviceOutcome {
  std::vector<std::vector<Entry>> entries;  // by rank, all of them
  std::vector<bool> dumped;                 // by rank: the process was there to write its dump
  bool hung = false;                        // some rank did not get through
};

DeviceOutcome execute_on_devices(const Job& job, const DeviceBehaviour& behaviour, Random& random);

}  // namespace lockstep::injection
