// Recorded runs as programs: what each rank of a healthy run on disk did, so that faults can be put
// into it and it can be run again. Real programs have orders, sizes and groups that nobody would
// make up.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/verify/injection/job.h"
#include "tests/verify/injection/trial.h"
#include "trace/run.h"

namespace lockstep::verify::injection {

// The run's program and what was recorded of it. Where a recorder forgot its oldest calls, or was
// read while ranks ran ahead, the calls that all members of a group have. Nothing where it has a
// call that the executors do not know (from any source, batched).
std::optional<Program> program_of(const trace::Run& run);

// The healthy runs in a corpus: folders of it, as its labels have it. Empty where it is not there.
struct Recorded {
  std::string name;
  Program program;
};
// `shared`: the folder that holds native, fr and mpi.
std::vector<Recorded> recorded_traces(const std::string& shared);
std::vector<Recorded> recorded_dumps(const std::string& shared);
std::vector<Recorded> recorded_mpi(const std::string& shared);

// Picks one of them at random.
Programs any_of(const std::vector<Recorded>& recorded);

// Where the corpora are: LOCKSTEP_SHARED_DATA, or ../shared/data beside the repository.
std::string shared_data();

}  // namespace lockstep::verify::injection
