// Reports of Nsight Systems, as `nsys export --type jsonlines` (or json) writes them: what the
// processes of a node did, with their kernels and the calls of CUDA that queued them.
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

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/text.h"
#include "trace/formats/format.h"
#include "trace/formats/json_fields.h"
#include "trace/formats/json_scan.h"
#include "trace/formats/kineto/events.h"
#include "trace/trace_builder.h"

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
// Processes of a node that use a GPU, at most.
constexpr std::size_t kMaxProcesses = 1024;
constexpr std::int64_t kLatestTime = INT64_MAX / 8;  // nanoseconds; sums stay in range

// Times of an event; nothing where they cannot be.
struct NsysTimes {
  Nanos begin = 0, end = 0;
};
std::optional<NsysTimes> times_in(const dom::object& event, std::string_view begin,
                                  std::string_view end) {
  const auto from = json_integer(event, begin), to = json_integer(event, end);
  if (!from || !to || *from < 0 || *to < *from || *to > kLatestTime) return std::nullopt;
  return NsysTimes{*from, *to};
}

std::int64_t process_in(std::int64_t global) { return (global >> 24U) & 0xFFFFFF; }

// 16 of "iteration 16", "iter_16", "Step#16" or "ProfilerStep#16"; nothing: the range is no step.
std::optional<std::int64_t> step_in_text(std::string_view text) {
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  std::string word;
  std::size_t at = 0;
  for (; at < text.size() && at < 16 && is_letter(text[at]); ++at)
    word += static_cast<char>(std::tolower(static_cast<unsigned char>(text[at])));
  if (word != "iteration" && word != "iter" && word != "step" && word != "profilerstep")
    return std::nullopt;
  at = std::min(text.find_first_not_of(" _#:=", at), text.size());
  std::int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), out);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && out >= 0 && out <= INT32_MAX ? std::optional(out) : std::nullopt;
}

std::string_view copy_name(std::int64_t kind) {
  // CUpti_ActivityMemcpyKind
  switch (kind) {
    case 1:
      return "Memcpy HtoD";
    case 2:
      return "Memcpy DtoH";
    case 8:
      return "Memcpy DtoD";
    case 9:
      return "Memcpy HtoH";
    case 10:
      return "Memcpy PtoP";
    default:
      return "Memcpy";
  }
}

class NsysReader {
 public:
  NsysReader(const TraceFile& file, Tables& tables) : file_(file), tables_(tables) {}

  Result<std::vector<RankTrace>> read() {
    each_line([this](std::string_view line) { take_strings(line); });
    each_line([this](std::string_view line) { take_event(line); });
    return assemble();
  }

 private:
  template <class Take>
  void each_line(const Take& take) const {
    for (std::string_view rest = file_.bytes; !rest.empty();) take(take_until(rest, '\n'));
  }

  void lose(std::string what) {
    ++damage_count_;
    if (damage_.size() < RankTrace::kDamagedKept) damage_.push_back(std::move(what));
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
      if (!elements.ended()) lose("the list of strings has no end");
    } else if (first->key == "type" && value.starts_with("\"String\"")) {
      dom::object object;
      if (!parse(line, object)) return lose("a string that is not JSON");
      const auto id = json_integer(object, "id");
      if (id) separate_[*id] = json_text(object, "value").value_or("");
    }
  }

  // What is known of a string: it is looked at once.
  struct Name {
    StringId id;
    std::string_view op, redop;  // of a kernel of NCCL
    std::optional<KinetoRuntimeCall::Kind> kind;
  };

  const Name& name(std::optional<std::int64_t> index) {
    const auto [found, is_new] = names_.try_emplace(index.value_or(-1));
    Name& out = found->second;
    if (!is_new) return out;
    const std::string text = string_at(found->first);
    out.id = tables_.strings.intern(text);
    out.op = op_of_nccl_kernel(text);
    out.redop = redop_of_nccl_kernel(text);
    out.kind = runtime_call_kind(text);
    return out;
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
    if (!parse(line, object)) return lose("a line that is not JSON");
    if (object.at_key("CudaEvent").get(event) == simdjson::SUCCESS) return take_work(event);
    if (object.at_key("NvtxEvent").get(event) == simdjson::SUCCESS) return take_range(event);
    if (of_api && object.at_key("TraceProcessEvent").get(event) == simdjson::SUCCESS)
      take_api_call(event);
  }

  // The events of the process of a globalPid or globalTid; null if there are too many processes.
  KinetoEvents* events_of(std::optional<std::int64_t> global) {
    const std::int64_t process = process_in(global.value_or(0));
    const auto known = processes_.find(process);
    if (known != processes_.end()) return &known->second;
    if (processes_.size() == kMaxProcesses) {
      lose("more processes than a node has");
      return nullptr;
    }
    KinetoEvents& out = processes_[process];
    out.pid = process;
    return &out;
  }

  void take_work(const dom::object& event) {
    dom::object kernel, copy, fill;
    const bool is_kernel = event.at_key("kernel").get(kernel) == simdjson::SUCCESS;
    const bool is_copy = !is_kernel && event.at_key("memcpy").get(copy) == simdjson::SUCCESS;
    // Other events (synchronisation, event records) repeat what the host's calls say.
    if (!is_kernel && !is_copy && event.at_key("memset").get(fill) != simdjson::SUCCESS) return;
    const auto times = times_in(event, "startNs", "endNs");
    if (!times) return lose("work of a GPU without a time");
    KinetoEvents* const events = events_of(json_integer(event, "globalPid"));
    if (events == nullptr) return;
    const std::int64_t device =
        std::clamp<std::int64_t>(json_integer(event, "deviceId").value_or(0), 0, kMaxProcesses);
    if (events->gpu == kNone) events->gpu = device;
    std::int64_t stream =
        std::clamp<std::int64_t>(json_integer(event, "streamId").value_or(0), 0, UINT32_MAX);
    // Streams of another device may have the same numbers.
    if (device != events->gpu) stream += (device + 1) << 32U;
    const std::int64_t correlation = json_integer(event, "correlationId").value_or(kNone);
    if (!is_kernel) {
      if (!file_.work) return;
      const std::string_view what =
          is_copy ? copy_name(json_integer(copy, "copyKind").value_or(0)) : "Memset";
      events->work.push_back({times->begin, times->end, correlation, stream,
                              tables_.strings.intern(std::string(what))});
      return;
    }
    auto index = json_integer(kernel, "demangledName");
    if (!index) index = json_integer(kernel, "shortName");
    const Name& called = name(index);
    if (called.op.empty()) {
      if (file_.work)
        events->work.push_back({times->begin, times->end, correlation, stream, called.id});
      return;
    }
    KinetoComm comm;
    comm.begin = times->begin;
    comm.end = times->end;
    comm.op = tables_.strings.intern(std::string(called.op));
    comm.redop = tables_.strings.intern(std::string(called.redop));
    comm.group = tables_.strings.intern(fmt::format("stream {}", stream));
    comm.correlation = correlation;
    comm.stream = stream;
    events->plain_kernels.push_back(comm);
  }

  void take_api_call(const dom::object& event) {
    const auto index = json_integer(event, "name");
    const auto kind = index ? name(index).kind : std::nullopt;
    if (!kind) return;
    const auto times = times_in(event, "startNs", "endNs");
    if (!times) return lose("a call of CUDA without a time");
    const auto thread = json_integer(event, "globalTid");
    if (KinetoEvents* const events = events_of(thread))
      events->runtime.push_back({times->begin, times->end,
                                 json_integer(event, "correlationId").value_or(kNone),
                                 thread.value_or(kNone), *kind});
  }

  void take_range(const dom::object& event) {
    std::string_view text = json_text(event, "Text").value_or("");
    std::string listed;
    if (const auto index = json_integer(event, "TextId"); index && text.empty()) {
      listed = string_at(*index);
      text = listed;
    }
    const auto number = step_in_text(text);
    const auto times = times_in(event, "Timestamp", "EndTimestamp");
    if (!number || !times) return;
    if (KinetoEvents* const events = events_of(json_integer(event, "GlobalTid")))
      events->steps.push_back({*number, times->begin, times->end});
  }

  // --- Ranks.

  // Removes ranges within others: "step 0" in "iteration 16".
  static void keep_outer(std::vector<KinetoStep>& steps) {
    std::stable_sort(steps.begin(), steps.end(), [](const KinetoStep& a, const KinetoStep& b) {
      return std::pair(a.begin, -a.end) < std::pair(b.begin, -b.end);
    });
    Nanos end = -1;
    std::erase_if(steps, [&](const KinetoStep& step) {
      if (step.begin < end) return true;
      end = step.end;
      return false;
    });
  }

  Result<std::vector<RankTrace>> assemble() {
    // Processes without a GPU (data loaders) are not ranks.
    std::erase_if(processes_, [](const auto& one) { return one.second.gpu == kNone; });
    if (processes_.empty())
      return Error{"this report shows no work of a GPU",
                   {file_.name},
                   "record it with nsys profile --trace=cuda,nvtx"};
    if (const Status known = identify(); !known) return known.error();
    const bool whole = file_.bytes.ends_with("\n") || last_line_is_whole();
    if (!whole) lose("the file ends in the middle; what came before was read");
    std::vector<RankTrace> out;
    for (auto& [process, events] : processes_) {
      events.whole = whole;
      if (out.empty()) {
        events.damage = std::move(damage_);
        events.damage_count = damage_count_;
      }
      keep_outer(events.steps);
      events.inconclusive =
          "reports of Nsight Systems have only the names of NCCL's kernels, neither groups nor "
          "sizes, so the ranks' calls cannot be compared";
      Result<std::vector<RankTrace>> rank = assemble_kineto(std::move(events), file_, tables_);
      if (!rank) return rank.error();
      std::move(rank->begin(), rank->end(), std::back_inserter(out));
    }
    return out;
  }

  // A single process is the rank in the file's name. Several are the ranks of a node, in the order
  // of their devices, if each has a device of its own.
  Status identify() {
    if (processes_.size() == 1) return Status::ok();
    std::map<std::int64_t, KinetoEvents*> by_device;
    for (auto& [process, events] : processes_) {
      if (by_device.emplace(events.gpu, &events).second) continue;
      return Error{fmt::format("{} processes of this report used GPU {} or others: nothing says "
                               "which rank each is",
                               processes_.size(), events.gpu),
                   {file_.name},
                   "record each rank by itself: nsys profile -o rank_%q{RANK}"};
    }
    std::int64_t rank = 0;
    for (auto& [device, events] : by_device) {
      events->rank = rank++;
      events->world_size = static_cast<std::int64_t>(by_device.size());
    }
    return Status::ok();
  }

  bool last_line_is_whole() {
    const std::size_t newline = file_.bytes.rfind('\n');
    const std::string_view last = file_.bytes.substr(newline == kNpos ? 0 : newline + 1);
    return json_value_end(last, json_skip_blanks(last, 0)) != kNpos;
  }

  const TraceFile& file_;
  Tables& tables_;
  std::vector<std::string_view> strings_;  // as in the file
  std::map<std::int64_t, std::string> separate_;
  std::unordered_map<std::int64_t, Name> names_;  // by index of the string
  std::map<std::int64_t, KinetoEvents> processes_;
  std::vector<std::string> damage_;
  std::uint64_t damage_count_ = 0;
  dom::parser parser_, text_parser_;
};

Result<std::vector<RankTrace>> read_nsys(const TraceFile& file, Tables& tables) {
  return NsysReader(file, tables).read();
}

// True if the first object is the list of strings, a string, or an event.
bool looks_like_nsys(std::string_view bytes) {
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
          .summary = "reports of Nsight Systems (nsys export --type jsonlines)",
          .recognises = looks_like_nsys,
          .read = read_nsys,
          .link = link_kineto,
          .unknown = kUnknownInNsys};
}

}  // namespace lockstep::trace
