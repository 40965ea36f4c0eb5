// One case of the harness for meshes: a healthy program, a fault, its run, and everything that this
// run can be seen through, each with what its data let a judge say. The answers to one case may get
// weaker from one form to a poorer one; they never differ.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/verify/injection/faults.h"
#include "tests/verify/injection/files.h"
#include "tests/verify/injection/meshes/mesh_faults.h"

namespace lockstep::verify::injection {

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

}  // namespace lockstep::verify::injection
