// What a judge can be asked for who sees one recording of a mesh's run: which ranks and which place
// its data tell, and whether they tell anything at all.
#pragma once

#include <string>
#include <vector>

#include "tests/verify/injection/devices.h"
#include "tests/verify/injection/executor.h"
#include "tests/verify/injection/faults.h"
#include "tests/verify/injection/meshes/mesh_faults.h"

namespace lockstep::verify::injection {

// What was called, whoever ran it.
struct Calls {
  std::vector<std::vector<const CallSpec*>> ranks;  // in their order
  std::vector<bool> raised;                         // by rank
  // By rank: the first collective that never completed; null: none, or nobody knows.
  std::vector<const CallSpec*> open;
  // By rank: the first call that never completed, collective or message; as above.
  std::vector<const CallSpec*> oldest;
  std::vector<bool> waits;  // by rank: some call of it never completed; empty: nobody knows
  bool hung = false;

  std::vector<const CallSpec*> collectives(int r, const std::string& group) const;
};

Calls calls_of(const DeviceOutcome& outcome);
Calls calls_of(const Job& job, const Outcome& outcome);

// What a view's recorder knows apart from the calls.
struct Knowledge {
  bool starts = false, completions = false;
  bool ends = true;         // that the ranks hung, or how else they ended
  bool exceptions = false;  // that a rank raised
  bool past = true;         // completed calls are listed
  bool complete = true;     // every rank's file is there
};

// Whether anything that such a recording shows differs between the members of a group.
bool shows(const Job& job, const Calls& calls, const Recording& recording, const Knowledge& known);

// `healthy` is the program before the fault, `job` with it.
Expectation expectation_of(MeshFault fault, const Deviation& deviation, const Job& healthy,
                           const Job& job, const Calls& calls, const Recording& recording,
                           const Knowledge& known);

}  // namespace lockstep::verify::injection
