// One trial: a healthy program, one fault put into it, the run of it, what that left on disk and
// what a judge of that can be asked to find. The tests and the accuracy table share it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tests/verify/injection/faults.h"
#include "tests/verify/injection/files.h"
#include "tests/verify/injection/job.h"

namespace lockstep::verify::injection {

// What the run is seen through.
enum class Form {
  traces,  // every call of every rank, from its beginning, in the text form
  dumps,   // Flight Recorder dumps of ranks with devices, taken when nothing moved any more
};

// Healthy programs, and how one is recorded: as wished, as far as it can be.
struct Program {
  Job job;
  Recording recording;
  bool recorded = false;  // from a run on disk
};
using Programs = std::function<Program(const Recording& wish, Random&)>;
// A program of any of the shapes.
Program generated_program(const Recording& wish, Random& random);

struct Trial {
  Files files;
  std::string words;  // the program, how it was run and recorded
  Expectation expected;
  // A place that tells the fault was overwritten in the recorder's ring: whatever is said of what
  // is left, only that something is said counts.
  bool overwritten = false;
  std::int64_t stopped_at = 0;  // of make_running(): when the dumps were taken, in their own times
};

// Nothing: no program with a place for the fault was found, or the schedule got through by luck.
std::optional<Trial> make_trial(Fault fault, const Programs& programs, Form form, Random& random);

// A healthy run. Dumps: all calls issued, completions seen up to a few calls late.
Trial make_healthy(const Programs& programs, Form form, Random& random);

// Dumps of a healthy job under way: some ranks enqueued calls that others have not come to.
Trial make_running(const Programs& programs, Random& random);

}  // namespace lockstep::verify::injection
