// Meshes by chance under NCCL's rules and under blocking ones, every fault, every form: is the
// right rank named, and nobody else?
//
//   INJECTION_REPORT=1        prints the tables and the classes of wrong answers, with seeds
//   INJECTION_PROGRAMS=<n>    judges that many programs
//   INJECTION_FIRST=<seed>    … from this seed on
//   INJECTION_FAULT=<name>    this fault alone; with
//   INJECTION_SEED=<n>        … this case alone: what was wanted and what was said, and
//   INJECTION_DUMP=<folder>   … its files, in a folder for each form
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <gtest/gtest.h>

#include "support/sanitized.h"
#include "verify/injection/mesh_tally.h"

namespace lockstep::injection {
namespace {

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

MeshRange wanted_range() {
  MeshRange range;
  range.programs = kSanitized ? 100 : 2000;
  range.only = setting("INJECTION_FAULT");
  if (const std::string n = setting("INJECTION_PROGRAMS"); !n.empty())
    range.programs = std::stoi(n);
  if (const std::string n = setting("INJECTION_FIRST"); !n.empty()) {
    range.first = static_cast<std::uint32_t>(std::stoul(n));
  }
  if (const std::string n = setting("INJECTION_SEED"); !n.empty()) {
    range.first = static_cast<std::uint32_t>(std::stoul(n));
    range.programs = 1;
  }
  return range;
}

void dump_case(const MeshRange& range) {
  const std::string folder = setting("INJECTION_DUMP");
  if (folder.empty() || range.only.empty() || range.programs != 1) return;
  for (int f = 0; f < kMeshFaults; ++f) {
    const auto fault = static_cast<MeshFault>(f);
    if (range.only != to_string(fault)) continue;
    const auto made = make_mesh_case(fault, range.first);
    if (!made) continue;
    for (const MeshView& view : made->views) {
      const std::filesystem::path at = std::filesystem::path(folder) / to_string(view.form);
      std::filesystem::create_directories(at);
      for (const auto& [name, bytes] : view.files) {
        std::ofstream(at / name, std::ios::binary) << bytes;
      }
    }
  }
}

TEST(NcclInjection, FindsWhatTheDataTell) {
  const MeshRange range = wanted_range();
  dump_case(range);
  const MeshTally tally = judge_meshes(range);
  ASSERT_GT(tally.programs, 0);
  if (!setting("INJECTION_REPORT").empty()) {
    std::cout << mesh_tables(tally) << mesh_failures(tally) << "\n";
  }
  if (!setting("INJECTION_SEED").empty()) {
    for (const MeshFailure& f : tally.failures) std::cout << f.text << "\n";
  }
}

}  // namespace
}  // namespace lockstep::injection
