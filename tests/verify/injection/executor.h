// Runs a Job as a Gloo-like backend would and writes what each rank's recorder would have seen, in
// the trace form. Collectives complete when every member issued its call of the same number;
// point-to-point calls when both sides did.
#pragma once

#include <string>
#include <vector>

#include "tests/verify/injection/job.h"

namespace lockstep::verify::injection {

struct Behaviour {
  enum class Mismatch {
    hangs,   // calls that do not fit never complete
    silent,  // they complete with garbage
    aborts,  // one of the ranks dies in it, as Gloo's I/O thread does
  } mismatch = Mismatch::hangs;
  enum class Death {
    peers_hang,   // a watchdog ends those who wait for a dead rank
    peers_raise,  // they lose their connection
  } death = Death::peers_hang;
  bool buffered_sends = false;
  bool records_completion = true;
  // Stop after that many actions of all ranks, as a copy of a running job's traces would; kUnset:
  // run to the end.
  int stop_after = kUnset;
};

struct Outcome {
  std::vector<std::string> traces;   // by rank
  std::vector<std::size_t> reached;  // by rank: actions performed, the one it is blocked in counted
  bool hung = false;                 // some rank never got through
  bool stopped = false;              // by Behaviour::stop_after
  std::vector<int> died;             // ranks that an abort took
};

Outcome execute(const Job& job, const Recording& recording, const Behaviour& behaviour,
                Random& random);

}  // namespace lockstep::verify::injection
