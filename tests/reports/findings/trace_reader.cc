#include "tests/reports/findings/trace_reader.h"

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/environment.h"

namespace lockstep::reports {
namespace {

using Json = nlohmann::json;

// Where scripts/fetch-perfetto leaves it.
std::string perfetto_folder() { return cache_folder() + "/perfetto-52.0"; }

std::string quoted(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

struct Written {
  std::size_t slices = 0, instants = 0, arrows = 0, values = 0;
};

// By the phases of the Trace Event Format. An arrow through n calls is seen as n - 1.
Written written_in(const Json& timeline) {
  Written out;
  for (const Json& event : timeline["traceEvents"]) {
    const std::string phase = event["ph"];
    out.slices += phase == "X" ? 1U : 0U;
    out.instants += phase == "i" ? 1U : 0U;
    out.arrows += phase == "t" || phase == "f" ? 1U : 0U;
    out.values += phase == "C" ? event["args"].size() : 0U;
  }
  return out;
}

// What Perfetto drops is an error to it, except ends of arrows that begin nowhere.
constexpr const char* kComplaints =
    "select name, value from stats where value > 0 and"
    " (severity in ('error', 'data_loss') or name glob 'flow_*')";
// Findings stand in tracks of processes, steps in those of threads; neither lasts.
constexpr const char* kCounts =
    "select (select count(*) from slice where dur > 0) as slices,"
    " (select count(*) from slice where dur = 0) as instants,"
    " (select count(*) from slice where dur < 0) as unclosed,"
    " (select count(*) from slice where dur > 0 and depth > 0) as covered,"
    " (select count(*) from flow) as arrows,"
    " (select count(*) from counter) as \"values\"";
constexpr const char* kArrows =
    "with call as (select slice.id, thread.upid, extract_arg(arg_set_id, 'args.group') as grp,"
    " extract_arg(arg_set_id, 'args.seq') as seq, extract_arg(arg_set_id, 'args.peer') as peer"
    " from slice join thread_track on slice.track_id = thread_track.id join thread using (utid))"
    " select count(*) as joined, sum(a.upid = b.upid or a.grp <> b.grp"
    " or (a.peer is null and a.seq <> b.seq)) as wrong"
    " from flow join call a on slice_out = a.id join call b on slice_in = b.id";

}  // namespace

std::string why_no_perfetto() {
  if (std::system("node --version >/dev/null 2>&1") != 0)
    return "NOT TESTED: there is no node (scripts/setup core timeline)";
  if (!std::filesystem::exists(perfetto_folder() + "/trace_processor.wasm"))
    return "NOT TESTED: Perfetto's trace processor is not there (scripts/fetch-perfetto)";
  return "";
}

std::optional<Json> Perfetto::ask(const std::string& file,
                                  const std::vector<std::string>& queries) {
  std::string command = "timeout 300 node " LOCKSTEP_SOURCE_DIR
                        "/tests/reports/findings/trace_query.js " +
                        quoted(perfetto_folder()) + " " + quoted(file);
  for (const std::string& query : queries) command += " " + quoted(query);
  command += " >" + folder_.file("answers") + " 2>" + folder_.file("complaint");
  const int status = std::system(command.c_str());
  complaint_ = TempDir::read(folder_.file("complaint"));
  if (status != 0) return std::nullopt;
  return Json::parse(TempDir::read(folder_.file("answers")));
}

void expect_perfetto_reads(const std::string& file) {
  Perfetto perfetto;
  const auto answers = perfetto.ask(file, {kComplaints, kCounts, kArrows});
  ASSERT_TRUE(answers) << perfetto.complaint();
  EXPECT_EQ((*answers)[0].size(), 0U) << (*answers)[0].dump();
  const Written written = written_in(Json::parse(TempDir::read(file)));
  const Json& seen = (*answers)[1][0];
  EXPECT_EQ(seen["slices"], written.slices);
  EXPECT_EQ(seen["instants"], written.instants);
  EXPECT_EQ(seen["arrows"], written.arrows);
  EXPECT_EQ(seen["values"], written.values);
  EXPECT_EQ(seen["covered"], 0) << "slices of one track overlap";
  EXPECT_EQ(seen["unclosed"], 0);
  const Json& arrows = (*answers)[2][0];
  EXPECT_EQ(arrows["joined"], written.arrows) << "an arrow ends in nothing";
  if (written.arrows > 0) {
    EXPECT_EQ(arrows["wrong"], 0) << "an arrow joins calls that never met";
  }
}

}  // namespace lockstep::reports
