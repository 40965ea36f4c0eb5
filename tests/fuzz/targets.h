// The fuzz targets: code that reads, judges or reports untrusted input, each as a function of
// bytes. A target returns for any bytes. It ends the program (by a check or a sanitizer) if the
// code under test breaks a promise.
//
// libFuzzer calls one of them (fuzz_main.cc, one program per target: scripts/fuzz). corpus_test.cc
// calls all of them on the files of corpus/<name>/, in every build. The trainer's readers have a
// table (data_targets.cc) and a test program of their own.
#pragma once

#include <span>
#include <string_view>

namespace lockstep {

struct FuzzTarget {
  std::string_view name;  // of its folder in corpus/
  void (*run)(std::string_view bytes);
};

// The targets of this program.
std::span<const FuzzTarget> fuzz_targets();

// Lockstep's own trace formats.
void fuzz_text_trace(std::string_view bytes);
void fuzz_ring_trace(std::string_view bytes);
// The text traces of several ranks: judged and reported.
void fuzz_verify(std::string_view bytes);
// A derivation, decided and certified.
void fuzz_product(std::string_view bytes);
// Foreign recordings (fuzz_format.h).
void fuzz_flight_recorder(std::string_view bytes);
void fuzz_kineto(std::string_view bytes);
void fuzz_nsys(std::string_view bytes);
void fuzz_chakra(std::string_view bytes);
void fuzz_nccl_log(std::string_view bytes);
void fuzz_watchdog_log(std::string_view bytes);
void fuzz_detail_log(std::string_view bytes);
void fuzz_execution_trace(std::string_view bytes);
void fuzz_clog(std::string_view bytes);
void fuzz_digest(std::string_view bytes);
// Logs and stacks beside recordings (trace/evidence).
void fuzz_evidence(std::string_view bytes);
// Containers of recordings.
void fuzz_pickle(std::string_view bytes);
void fuzz_archive(std::string_view bytes);
// Files that people write, and files that Lockstep wrote earlier.
void fuzz_scenario(std::string_view bytes);
void fuzz_plan(std::string_view bytes);
void fuzz_suppressions(std::string_view bytes);
void fuzz_baseline(std::string_view bytes);
void fuzz_work_costs(std::string_view bytes);
void fuzz_machine(std::string_view bytes);
void fuzz_sweep_file(std::string_view bytes);
void fuzz_sweep_row(std::string_view bytes);
void fuzz_measured_table(std::string_view bytes);
void fuzz_calibration(std::string_view bytes);
// Traces as programs: replayed, simulated, and forecast for a machine.
void fuzz_replay(std::string_view bytes);
void fuzz_simulation(std::string_view bytes);
void fuzz_forecast(std::string_view bytes);
// Files that the trainer reads: data sets, images, vocabularies, texts and weights.
void fuzz_captions(std::string_view bytes);
void fuzz_jsonl(std::string_view bytes);
void fuzz_webdataset(std::string_view bytes);
void fuzz_jpeg(std::string_view bytes);
void fuzz_png(std::string_view bytes);
void fuzz_wordpiece(std::string_view bytes);
void fuzz_safetensors(std::string_view bytes);

}  // namespace lockstep
