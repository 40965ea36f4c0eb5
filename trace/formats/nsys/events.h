// What a report of Nsight Systems says of the processes of a node, whichever way it was exported:
// collected event by event, then made into the traces of ranks. Internal to the readers of reports.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "trace/formats/format.h"
#include "trace/formats/kineto/events.h"

namespace lockstep::trace {

// Times of an event in nanoseconds.
struct NsysTimes {
  Nanos begin = 0, end = 0;
};
// Nothing where they cannot be.
std::optional<NsysTimes> nsys_times(std::optional<std::int64_t> begin,
                                    std::optional<std::int64_t> end);

class NsysEvents {
 public:
  // An integer of the report that may be missing.
  using Maybe = std::optional<std::int64_t>;

  // A kernel, copy or fill.
  struct Work {
    std::optional<NsysTimes> times;
    Maybe process, device, stream, correlation;  // process: a "globalPid"
  };

  // `text_of`: the string with an index; empty if there is none. It is called while events are
  // taken.
  NsysEvents(const TraceFile& file, Tables& tables,
             std::function<std::string(std::int64_t)> text_of)
      : file_(file), tables_(tables), text_of_(std::move(text_of)) {}

  // Counts a damaged record.
  void lose(std::string what);

  void take_kernel(const Work& work, Maybe name);
  void take_copy(const Work& work, std::int64_t kind);  // CUpti_ActivityMemcpyKind
  void take_fill(const Work& work);
  // A launch of a CUDA graph that was recorded as a whole: its kernels are not in the report.
  void take_graph(Work work);
  // A call of CUDA. `thread`: a "globalTid".
  void take_api_call(Maybe begin, Maybe end, Maybe thread, Maybe correlation, Maybe name);
  // An NVTX range.
  void take_range(std::string_view text, Maybe begin, Maybe end, Maybe thread);

  // The traces of all processes that used a GPU. `whole`: false if the report is cut off. Call
  // once. Errors: no such process; nothing says which ranks they are.
  Result<std::vector<RankTrace>> assemble(bool whole);

 private:
  // What is known of a string: it is looked at once.
  struct Name {
    StringId id;
    std::string_view op, redop;  // of a kernel of NCCL
    std::optional<KinetoRuntimeCall::Kind> kind;
    bool launches_graph = false;
  };
  // CUDA graphs of a process: how many were recorded as a whole, and the calls that launched some.
  struct Graphs {
    std::uint64_t whole = 0;
    std::vector<std::int64_t> launches;  // their correlations
  };
  const Name& name(Maybe index);

  KinetoEvents* events_of(Maybe global);
  // The process of the work, and its stream; null if it was lost.
  KinetoEvents* place_of(const Work& work, std::int64_t& stream);
  void add_work(const Work& work, StringId name);
  // Launches of CUDA graphs by the process's calls that left no work of theirs in the report.
  std::size_t launches_without_work(std::int64_t process) const;
  void say_what_graphs_hide(std::int64_t process, KinetoEvents& events) const;
  Error no_work() const;
  Status identify();

  const TraceFile& file_;
  Tables& tables_;
  std::function<std::string(std::int64_t)> text_of_;
  std::unordered_map<std::int64_t, Name> names_;  // by index of the string
  std::map<std::int64_t, KinetoEvents> processes_;
  std::map<std::int64_t, Graphs> graphs_;  // by process
  std::vector<std::string> damage_;
  std::uint64_t damage_count_ = 0;
};

// A report as SQLite database (`nsys export --type sqlite`): sqlite.cc.
bool looks_like_sqlite(std::string_view bytes);
Result<std::vector<RankTrace>> read_nsys_sqlite(const TraceFile& file, Tables& tables);

}  // namespace lockstep::trace
