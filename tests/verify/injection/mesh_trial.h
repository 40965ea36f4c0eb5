// One case of the harness for meshes: a healthy program, a fault, its run, and everything that this
// run can be seen through, each with what its data let a judge say. The answers to one case may get
// weaker from one form to a poorer one; they never differ.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/injection/faults.h"
#include "verify/injection/files.h"
#include "verify/injection/mesh_faults.h"
#include "verify/report.h"

namespace lockstep::injection {

enum class MeshForm {
  profiler,         // T: NCCL's profiler: starts and completions, no waits
  recorder,         // P: our recorder over NCCL: waits that are over at once, completions
  blocking,         // G: waits that block; from the blocking executor
  issues,           // I: issue lines alone
  flight_recorder,  // F: dumps of the same run as T, P and I
};
inline constexpr int kMeshForms = static_cast<int>(MeshForm::flight_recorder) + 1;
const char* to_string(MeshForm form);

struct MeshView {
  MeshForm form{};
  Files files;
  std::string words;  // what is recorded
  Expectation expected;
  // Nothing that is recorded differs from a healthy run: "clean" is right, and nobody is accused.
  bool may_be_clean = false;
};

struct MeshCase {
  MeshFault fault{};
  Deviation deviation;
  std::string words;  // the program and how it was run
  std::vector<MeshView> views;
};

// Nothing: no program with a place for the fault was found, or the fault shows nowhere. The seed
// decides everything.
std::optional<MeshCase> make_mesh_case(MeshFault fault, std::uint32_t seed);

// How a report stands beside what the data of its view can tell.
enum class Mark {
  exact,      // the right ranks, or nobody where no one can be named
  among,      // some of them, or others as well
  nobody,     // found; no rank was named though one could be
  innocents,  // only ranks that did nothing wrong were named; of healthy runs: a finding
  undecided,  // "inconclusive" where the data allow it
  missed,     // "clean" or "inconclusive" where the data tell
};
inline constexpr int kMarks = static_cast<int>(Mark::missed) + 1;
const char* to_string(Mark mark);

struct MeshJudgement {
  Mark mark{};
  bool rule = false;   // of an exact one: a rule that the data allow
  bool place = false;  // … and group, number and step
};
MeshJudgement judge(const Report& report, MeshFault fault, const MeshView& view);

// Of two views of one case: whether neither answer is wrong beside the other.
bool agree(const Report& a, const Report& b);

// What a case with this mark, rule and place is to be done about; empty: nothing.
std::string complaint(const MeshJudgement& judgement, MeshFault fault, const MeshView& view);

}  // namespace lockstep::injection
