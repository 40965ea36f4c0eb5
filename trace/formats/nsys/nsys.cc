// Reports of Nsight Systems, as `nsys export --type jsonlines` (or json) writes them, or as SQLite
// database (sqlite.cc): what the processes of a node did, with their kernels and the calls of CUDA
// that queued them.
//
//   {"data":["[Unknown]", …, "cudaLaunchKernel_v7000", …]}
//   {"Type":48,"TraceProcessEvent":{"startNs":"140547168","endNs":"140562944",
//     "correlationId":745,"eventClass":1,"name":"330","globalTid":"292568055813839"}}
//   {"Type":79,"CudaEvent":{"startNs":"140564259","endNs":"140619331","correlationId":745,
//     "deviceId":1,"streamId":"7","eventClass":3,"globalPid":"292568055152640",
//     "kernel":{"demangledName":"316","shortName":"316"}}}
//   {"Type":59,"NvtxEvent":{"Timestamp":"27651616","Text":"iteration 16",
//     "GlobalTid":"292568055813839","EndTimestamp":"1450326304","DomainId":"0"}}
//
// Names are indices in the list of strings. Older versions write this list after the events; with
// --separate-strings each string is a line {"type":"String","id":"316","value":"gemm"}. Bits 24 to
// 47 of "globalPid" and "globalTid" are the process. NVTX ranges whose text is a step's number
// ("iteration 16") are the training steps.
//
// The name of an NCCL kernel shows the operation, but nothing shows the communicator. So a report
// is read like a profile from before PyTorch 2.3 (trace/formats/kineto), with the same work between
// the calls.
//
// Cost: two passes over the file, for the strings and for the events; only lines of interest are
// parsed. Memory: at most kNsysMemoryFactor times the file's size.

#include <simdjson.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "base/text.h"
#include "trace/formats/format.h"
#include "trace/formats/json_fields.h"
#include "trace/formats/json_scan.h"
#include "trace/formats/nsys/events.h"

namespace lockstep::trace {

namespace {

namespace dom = simdjson::dom;

constexpr std::array<std::string_view, 4> kUnknownInNsys = {
    "Nsight Systems records a window of the run: what came before and after it is not known",
    "groups, sizes, types and peers of calls: the kernels of NCCL name only their operation",
    "reduce operation: not recorded by Nsight Systems, except where the name of a kernel shows it",
    "waits of the host: not distinguished by Nsight Systems",
};

constexpr std::size_t kNsysHead = std::size_t{64} << 10U;  // bytes by which a report is recognised
constexpr std::size_t kLongestNsysLine = std::size_t{1}
                                         << 20U;  // of an event; a longer one is damaged

class NsysReader {
 public:
  NsysReader(const TraceFile& file, Tables& tables)
      : file_(file),
        events_(file, tables, [this](std::int64_t index) { return string_at(index); }) {}

  Result<std::vector<RankTrace>> read() {
    each_line([this](std::string_view line) { take_strings(line); });
    each_line([this](std::string_view line) { take_event(line); });
    const bool whole = file_.bytes.ends_with("\n") || last_line_is_whole();
    if (!whole) events_.lose("the file ends in the middle; what came before was read");
    return events_.assemble(whole);
  }

 private:
  template <class Take>
  void each_line(const Take& take) const {
    for (std::string_view rest = file_.bytes; !rest.empty();) take(take_until(rest, '\n'));
  }

  // --- Strings.

  void take_strings(std::string_view line) {
    JsonMembers members(line);
    const auto first = members.next();
    if (!first) return;
    const std::string_view value = line.substr(first->begin);
    if (first->key == "data" && strings_.empty() && value.starts_with("[")) {
      JsonElements elements(line, first->begin, kLongestNsysLine);
      while (const auto element = elements.next()) strings_.push_back(*element);
      if (!elements.ended()) events_.lose("the list of strings has no end");
    } else if (first->key == "type" && value.starts_with("\"String\"")) {
      dom::object object;
      if (!parse(line, object)) return events_.lose("a string that is not JSON");
      const auto id = json_integer(object, "id");
      if (id) separate_[*id] = json_text(object, "value").value_or("");
    }
  }

  std::string string_at(std::int64_t index) {
    if (const auto found = separate_.find(index); found != separate_.end()) return found->second;
    if (index < 0 || static_cast<std::size_t>(index) >= strings_.size()) return {};
    // With its quotes and escapes.
    const std::string_view text = strings_[static_cast<std::size_t>(index)];
    std::string_view out;
    if (text_parser_.parse(text.data(), text.size()).get(out) != simdjson::SUCCESS) return {};
    return std::string(out);
  }

  // --- Events.

  bool parse(std::string_view line, dom::object& out) {
    return line.size() <= kLongestNsysLine &&
           parser_.parse(line.data(), line.size()).get(out) == simdjson::SUCCESS;
  }

  void take_event(std::string_view line) {
    const auto says = [&](std::string_view key) { return line.find(key) != kNpos; };
    const bool of_cuda = says("\"CudaEvent\"");
    const bool of_api = file_.work && says("\"TraceProcessEvent\"");
    if (!of_cuda && !of_api && !says("\"NvtxEvent\"")) return;
    dom::object object, event;
    if (!parse(line, object)) return events_.lose("a line that is not JSON");
    if (object.at_key("CudaEvent").get(event) == simdjson::SUCCESS) return take_work(event);
    if (object.at_key("NvtxEvent").get(event) == simdjson::SUCCESS) return take_range(event);
    if (of_api && object.at_key("TraceProcessEvent").get(event) == simdjson::SUCCESS)
      take_api_call(event);
  }

  void take_work(const dom::object& event) {
    dom::object kernel, copy, fill;
    const bool is_kernel = event.at_key("kernel").get(kernel) == simdjson::SUCCESS;
    const bool is_copy = !is_kernel && event.at_key("memcpy").get(copy) == simdjson::SUCCESS;
    // Other events (synchronisation, event records) repeat what the host's calls say.
    if (!is_kernel && !is_copy && event.at_key("memset").get(fill) != simdjson::SUCCESS) return;
    const NsysEvents::Work work{
        nsys_times(json_integer(event, "startNs"), json_integer(event, "endNs")),
        json_integer(event, "globalPid"), json_integer(event, "deviceId"),
        json_integer(event, "streamId"), json_integer(event, "correlationId")};
    if (is_copy) return events_.take_copy(work, json_integer(copy, "copyKind").value_or(0));
    if (!is_kernel) return events_.take_fill(work);
    auto index = json_integer(kernel, "demangledName");
    if (!index) index = json_integer(kernel, "shortName");
    events_.take_kernel(work, index);
  }

  void take_api_call(const dom::object& event) {
    events_.take_api_call(json_integer(event, "startNs"), json_integer(event, "endNs"),
                          json_integer(event, "globalTid"), json_integer(event, "correlationId"),
                          json_integer(event, "name"));
  }

  void take_range(const dom::object& event) {
    std::string_view text = json_text(event, "Text").value_or("");
    std::string listed;
    if (const auto index = json_integer(event, "TextId"); index && text.empty()) {
      listed = string_at(*index);
      text = listed;
    }
    events_.take_range(text, json_integer(event, "Timestamp"), json_integer(event, "EndTimestamp"),
                       json_integer(event, "GlobalTid"));
  }

  bool last_line_is_whole() {
    const std::size_t newline = file_.bytes.rfind('\n');
    const std::string_view last = file_.bytes.substr(newline == kNpos ? 0 : newline + 1);
    return json_value_end(last, json_skip_blanks(last, 0)) != kNpos;
  }

  const TraceFile& file_;
  std::vector<std::string_view> strings_;  // as in the file
  std::map<std::int64_t, std::string> separate_;
  NsysEvents events_;
  dom::parser parser_, text_parser_;
};

Result<std::vector<RankTrace>> read_nsys(const TraceFile& file, Tables& tables) {
  if (looks_like_sqlite(file.bytes)) return read_nsys_sqlite(file, tables);
  return NsysReader(file, tables).read();
}

// True if the first object is the list of strings, a string, or an event.
bool looks_like_nsys(std::string_view bytes) {
  if (looks_like_sqlite(bytes)) return true;
  const std::string_view head = bytes.substr(0, kNsysHead);
  const std::string_view text = head.substr(json_skip_blanks(head, 0));
  JsonMembers members(text);
  const auto first = members.next();
  if (!first) return false;
  const std::string_view value = text.substr(first->begin);
  if (first->key == "data")
    return value.starts_with("[\"[Unknown]\"") ||
           (value.starts_with("[\"") && text.find("\n{\"Type\":") != kNpos);
  if (first->key == "type") return value.starts_with("\"String\"");
  if (first->key != "Type") return false;
  const auto second = members.next();
  return second && second->key.ends_with("Event");
}

}  // namespace

Format nsys_format() {
  return {.name = "nsys",
          .summary = "reports of Nsight Systems (nsys export: jsonlines, sqlite)",
          .recognises = looks_like_nsys,
          .read = read_nsys,
          .link = link_kineto,
          .unknown = kUnknownInNsys};
}

}  // namespace lockstep::trace
