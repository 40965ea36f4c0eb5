// Flight Recorder dumps of a few calls, written inline.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/trace/formats/pickle_writer.h"
#include "trace/load.h"
#include "verify/verify.h"

namespace lockstep::trace {

// A call of the group of all ranks, from line `line` of train.py.
struct DumpedCall {
  std::string name = "nccl:all_reduce";
  int seq = 1;
  int elements = 8;
  std::string state = "completed";
  int line = 10;
  bool p2p = false;
  int output = -1;  // elements; -1: as many
  int record = -1;  // record_id; -1: the one after the last entry's
  // The function of torch.distributed that its frames name; empty: they have no such frame.
  std::string function = {};
};

// The dump of a rank of a job of `world` ranks that made these calls. `completed`: the last
// collective that its device completed.
inline std::string dump_of_calls(const std::vector<DumpedCall>& entries, int world,
                                 int completed = -1) {
  std::string ranks = "[";
  for (int r = 0; r < world; ++r) ranks += (r == 0 ? "" : ", ") + std::to_string(r);
  PickleWriter w;
  w.begin_dict().text("version").text("2.10").text("pg_config").begin_dict();
  w.text("0").begin_dict().text("name").text("0").text("desc").text("default_pg");
  w.text("ranks").text(ranks + "]").end_dict().end_dict();
  w.text("pg_status").begin_dict().text("0").begin_dict();
  w.text("last_completed_collective").integer(completed).end_dict().end_dict();
  w.text("entries").begin_list();
  int id = 0;
  for (const DumpedCall& e : entries) {
    w.begin_dict().text("frames").begin_list();
    const auto frame = [&](const std::string& name, const std::string& file, int line) {
      w.begin_dict().text("name").text(name).text("filename").text(file).text("line").integer(line);
      w.end_dict();
    };
    const std::string torch = "/x/torch/distributed";
    if (!e.function.empty()) frame(e.function, torch + "/distributed_c10d.py", 3);
    frame("f", torch + ".py", 7);
    frame("f", "train.py", e.line);
    if (e.record >= 0) id = e.record;
    w.end_list().text("record_id").integer(id++).text("pg_id").integer(0);
    w.text("process_group").pair("0", "default_pg");
    w.text("collective_seq_id").integer(e.p2p ? 0 : e.seq);
    w.text("p2p_seq_id").integer(e.p2p ? e.seq : 0);
    w.text("profiling_name").text(e.name).text("time_created_ns").integer(1000 + id);
    for (const char* const side : {"input_sizes", "output_sizes"}) {
      const bool other = e.output >= 0 && std::string_view(side) == "output_sizes";
      w.text(side).begin_list().begin_list().integer(other ? e.output : e.elements);
      w.end_list().end_list();
    }
    for (const char* const side : {"input_dtypes", "output_dtypes"}) {
      w.text(side).begin_list().text("Float").end_list();
    }
    w.text("state").text(e.state).text("retired").boolean(e.state == "completed");
    w.text("is_p2p").boolean(e.p2p).end_dict();
  }
  w.end_list().end_dict();
  return w.finish();
}

// A folder of dumps.
class FlightRecorder : public testing::Test {
 protected:
  void write(int rank, const std::string& bytes) {
    dir_.write(fmt::format("nccl_trace_rank_{}", rank), bytes);
  }
  trace::Run load() {
    Result<trace::Run> run = load_run({dir_.path()});
    EXPECT_TRUE(run) << (run ? "" : run.error().str());
    return run ? std::move(*run) : trace::Run{};
  }
  TempDir dir_;
};

// The verdict, and the culprits of its errors: "findings 2 3".
inline std::string judged_dumps(const trace::Run& run) {
  const verify::Report report = verify::verify(run);
  std::string out(verify::to_string(report.verdict));
  for (const verify::Finding& f : report.findings) {
    if (f.severity == verify::Severity::note) continue;
    for (const Rank rank : f.culprits) out += " " + std::to_string(rank.value);
  }
  return out;
}

}  // namespace lockstep::trace
