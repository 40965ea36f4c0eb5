// The fuzz targets: what reads, judges or reports things that others made, each as a function of
// bytes. A target returns whatever the bytes are; it ends the program (a check, a sanitizer) where
// a promise of the code under test does not hold.
//
// libFuzzer calls one of them (fuzz_main.cc, a program each: scripts/fuzz), and corpus_test.cc
// calls all of them on the files of corpus/<name>/, in every build that has the code: what the
// trainer reads has a table (data_targets.cc) and a test program of its own.
#pragma once

#include <span>
#include <string_view>

namespace lockstep {

struct FuzzTarget {
  std::string_view name;  // of its folder in corpus/
  void (*run)(std::string_view bytes);
};

// Of the program that this is.
std::span<const FuzzTarget> fuzz_targets();

// Lockstep's own forms of a trace.
void fuzz_text_trace(std::string_view bytes);
void fuzz_ring_trace(std::string_view bytes);
// The text traces of several ranks: judged and reported.
void fuzz_verify(std::string_view bytes);
// A derivation, decided and certified.
void fuzz_product(std::string_view bytes);
// Foreign recordings (fuzz_format.h).
void fuzz_flight_recorder(std::string_view bytes);
void fuzz_kineto(std::string_view bytes);
void fuzz_chakra(std::string_view bytes);
void fuzz_nccl_log(std::string_view bytes);
void fuzz_watchdog_log(std::string_view bytes);
void fuzz_detail_log(std::string_view bytes);
void fuzz_execution_trace(std::string_view bytes);
void fuzz_clog(std::string_view bytes);
void fuzz_digest(std::string_view bytes);
// What lies beside recordings (trace/evidence).
void fuzz_evidence(std::string_view bytes);
// What recordings come in.
void fuzz_pickle(std::string_view bytes);
void fuzz_archive(std::string_view bytes);
// What people write, and what we wrote earlier.
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
// Traces as programs: replayed, on a simulated clock, and with the costs of their work on a
// machine.
void fuzz_replay(std::string_view bytes);
void fuzz_simulation(std::string_view bytes);
void fuzz_forecast(std::string_view bytes);
// What the trainer reads: data sets, pictures, vocabularies and texts, weights.
void fuzz_captions(std::string_view bytes);
void fuzz_jsonl(std::string_view bytes);
void fuzz_webdataset(std::string_view bytes);
void fuzz_jpeg(std::string_view bytes);
void fuzz_png(std::string_view bytes);
void fuzz_wordpiece(std::string_view bytes);
void fuzz_safetensors(std::string_view bytes);

}  // namespace lockstep
