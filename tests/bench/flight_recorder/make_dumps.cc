// Writes a folder of Flight Recorder dumps (dumps.h), to measure or to try things on.
#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>

#include "tests/bench/flight_recorder/dumps.h"

int main(int argc, char** argv) {
  CLI::App app{
      "Write Flight Recorder dumps of a generated job.\n\nExample:\n"
      "  make_dumps --ranks 1024 --entries 2000 --fault host-stall /tmp/dumps"};
  lockstep::DumpJob job;
  std::string folder, fault = "none";
  app.add_option("folder", folder, "Where to write nccl_trace_rank_<r>")->required();
  app.add_option("--ranks", job.ranks, "Ranks")->capture_default_str()->check(CLI::Range(1, 65536));
  app.add_option("--entries", job.entries, "Entries that each rank's ring holds")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--groups", job.groups, "Process groups of a rank")
      ->capture_default_str()
      ->check(CLI::IsMember({1, 3}));
  app.add_option("--fault", fault, "What is wrong with the last rank")
      ->capture_default_str()
      ->check(CLI::IsMember({"none", "host-stall", "device-stall", "size", "skip"}));
  CLI11_PARSE(app, argc, argv);
  lockstep::parse_fault(fault, job.fault);
  const lockstep::Status written = lockstep::write_dumps(job, folder);
  if (written) return 0;
  std::fprintf(stderr, "%s\n", written.error().str().c_str());
  return 1;
}
