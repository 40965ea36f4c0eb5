// Writes what the devices' recorders hold as PyTorch's Flight Recorder dumps it: a pickle per rank
// (schema 2.10, with its surprises: pg_status by the rank's own group numbers, two counters in one,
// group ranks in the names of messages).
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/verify/injection/devices.h"
#include "tests/verify/injection/files.h"

namespace lockstep::verify::injection {

struct DumpStyle {
  bool timing = false;       // starts are recorded
  bool frames = true;        // source locations are
  bool only_active = false;  // completed calls are left out
  bool json = false;         // the twin in JSON: without source locations
  std::size_t ring = 2000;   // the recorder keeps that many of the newest calls
};
DumpStyle any_style(Random& random);

// Forgets what such a recorder does not keep.
void forget(DeviceOutcome& outcome, const DumpStyle& style);

// Makes some ranks see the completion of up to `most` of their newest calls only later: they were
// looked at a little before the others. At least one member of each group has seen everything.
void skew(const Job& job, DeviceOutcome& outcome, int most, Random& random);

// A time of the devices' common clock as the dumps have it.
std::int64_t time_in_dumps(std::int64_t clock);

// PyTorch calls the group of all ranks "0".
void name_as_torch(Job& job);

Files dump_files(const Job& job, const DeviceOutcome& outcome, const DumpStyle& style);

}  // namespace lockstep::verify::injection
