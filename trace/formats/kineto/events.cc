#include "trace/formats/kineto/events.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/numbers.h"
#include "base/text.h"
#include "trace/formats/json_fields.h"
#include "trace/formats/json_scan.h"
#include "trace/formats/torch_names.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

namespace dom = simdjson::dom;

constexpr std::size_t kLongestEvent = std::size_t{1} << 20U;   // bytes; a longer one is damaged
constexpr std::size_t kLongestInfo = std::size_t{64} << 20U;   // distributedInfo lists all groups
constexpr std::size_t kRecognisedIn = std::size_t{64} << 10U;  // bytes of the file's head
// Attempts to find the next event after a damaged one. Each may scan kLongestEvent bytes twice, so
// the limit keeps the cost of a hostile file linear.
constexpr int kMaxResyncs = 64;
constexpr std::size_t kDamageKept = RankTrace::kDamagedKept;

// A time in microseconds (7125 or 7125.5), as nanoseconds.
std::optional<Nanos> time_of(const dom::object& object, std::string_view key) {
  dom::element element;
  if (object.at_key(key).get(element) != simdjson::SUCCESS) return std::nullopt;
  constexpr std::int64_t kLatest = INT64_MAX / 2000;  // so that begin + duration cannot overflow
  std::int64_t whole = 0;
  if (element.get(whole) == simdjson::SUCCESS) {
    if (whole < 0 || whole > kLatest) return std::nullopt;
    return whole * 1000;
  }
  double micros = 0;
  if (element.get(micros) != simdjson::SUCCESS || !(micros >= 0)) return std::nullopt;
  if (micros > static_cast<double>(kLatest)) return std::nullopt;
  return static_cast<Nanos>(std::llround(micros * 1000));
}

// A list of integers, or a string that holds one ("[0, 1]").
std::optional<std::vector<std::int64_t>> list_of(const dom::object& object, std::string_view key) {
  dom::element element;
  if (object.at_key(key).get(element) != simdjson::SUCCESS) return std::nullopt;
  std::string_view text;
  if (element.get(text) == simdjson::SUCCESS) return integers_in(text);
  dom::array array;
  if (element.get(array) != simdjson::SUCCESS) return std::nullopt;
  std::vector<std::int64_t> out;
  for (const dom::element item : array) {
    std::int64_t value = 0;
    if (item.get(value) != simdjson::SUCCESS) return std::nullopt;
    out.push_back(value);
  }
  return out;
}

std::int32_t rank_of(const dom::object& object, std::string_view key) {
  const std::int64_t value = json_integer(object, key).value_or(kNone);
  return is_possible_rank(value, kMaxWorldSize) ? static_cast<std::int32_t>(value) : kNone;
}

// Walks the file's members and events without parsing, and parses those of interest.
class KinetoScanner {
 public:
  KinetoScanner(std::string_view bytes, const std::string& file, Tables& tables, bool work)
      : bytes_(bytes), file_(file), tables_(tables), work_(work) {}

  Result<KinetoEvents> scan() {
    JsonMembers top(bytes_);
    bool any_events = false;
    while (const auto member = top.next()) {
      if (member->key == "traceEvents") {
        any_events = true;
        const std::size_t end = scan_events(member->begin);
        if (end == kNpos) return finish(false);
        top.leave_at(end);
      } else if (member->key == "distributedInfo") {
        scan_info(member->begin);
      } else if (member->key == "host_name" || member->key == "hostname") {
        read_host(member->begin);
      }
    }
    if (!any_events && top.ended()) {
      return Error{"no traceEvents in this profile", {file_}, "is it one of torch.profiler?"};
    }
    return finish(top.ended());
  }

 private:
  Result<KinetoEvents> finish(bool whole) {
    events_.whole = whole;
    if (!whole) lose("the file ends in the middle; what came before was read");
    return std::move(events_);
  }

  void lose(std::string what) {
    ++events_.damage_count;
    if (events_.damage.size() < kDamageKept) events_.damage.push_back(std::move(what));
  }

  // Parses an object; on failure a second time with words like nan replaced by null.
  bool parse(std::string_view text, dom::object& object) {
    const auto attempt = [&](std::string_view json) {
      dom::element element;
      return parser_.parse(json.data(), json.size()).get(element) == simdjson::SUCCESS &&
             element.get(object) == simdjson::SUCCESS;
    };
    if (attempt(text)) return true;
    repaired_ = json_without_bare_words(text);
    return repaired_ != text && attempt(repaired_);
  }

  // One past the array of events that begins at `at`; npos where the file ends within it.
  std::size_t scan_events(std::size_t at) {
    if (at >= bytes_.size()) return kNpos;
    if (bytes_[at] != '[') {
      lose("traceEvents is not a list");
      return json_value_end(bytes_, at);
    }
    JsonElements events(bytes_, at, kLongestEvent);
    while (true) {
      if (const auto event = events.next()) {
        scan_event(*event);
        continue;
      }
      if (events.ended()) return events.at();
      const std::size_t next = next_event(events.at() + 1);
      if (next == kNpos) return kNpos;
      events.go_on_at(next);
    }
  }

  // Where the next event begins after one without an end (a damaged bracket or quote); npos: none.
  // Events begin with {"ph": or {"name":, in all versions.
  std::size_t next_event(std::size_t from) {
    if (resyncs_ == kMaxResyncs) return kNpos;
    ++resyncs_;
    for (std::size_t at = bytes_.find('{', from); at != kNpos; at = bytes_.find('{', at + 1)) {
      const std::size_t key = json_skip_blanks(bytes_, at + 1);
      const std::string_view head = bytes_.substr(std::min(key, bytes_.size()), 7);
      if (head.starts_with("\"ph\"") || head.starts_with("\"name\"")) {
        if (inside_event(from, at)) continue;
        lose("a damaged event");
        return at;
      }
    }
    return kNpos;
  }

  // Whether the object at `at` is the value of a member: "args": {"name": …} begins like an event.
  bool inside_event(std::size_t from, std::size_t at) const {
    const std::string_view before = bytes_.substr(from, at - from);
    const std::size_t last = before.find_last_not_of(" \t\r\n");
    return last != kNpos && before[last] == ':';
  }

  // Selects events by substrings, which is many times faster than parsing all: most are not used.
  void scan_event(std::string_view text) {
    if (work_ && concerns_work(text)) {
      dom::object event;
      if (parse(text, event)) read_work(event);
      // Below, the same event may be communication, too.
    }
    if (text.find("Collective name") != kNpos) {
      dom::object event;
      if (!parse(text, event)) return lose("an event of a collective that is not JSON");
      read_comm(event);
    } else if (text.find("ProfilerStep#") != kNpos) {
      dom::object event;
      if (parse(text, event)) read_step(event);
    } else if (may_be_comm_kernel(text) && text.find("\"args\"") != kNpos) {
      dom::object event;
      if (parse(text, event)) read_plain_kernel(event);
    } else if (events_.calls.empty() && text.find("\"record_param_comms\"") != kNpos) {
      ++events_.without_details;
    }
  }

  static bool may_be_comm_kernel(std::string_view text) {
    for (const std::string_view begin : {"\"nccl", "\"mccl", "\"oneccl_"})
      if (text.find(begin) != kNpos) return true;
    return false;
  }

  static bool concerns_work(std::string_view text) {
    for (const std::string_view category : {"\"kernel\"", "\"Kernel\"", "\"gpu_mem", "_runtime\"",
                                            "_driver\"", "\"Memcpy\"", "\"Memset\"", "\"Runtime\""})
      if (text.find(category) != kNpos) return true;
    return false;
  }

  // Reads a kernel, a copy or a call of the runtime.
  void read_work(const dom::object& event) {
    const std::string_view category = json_text(event, "cat").value_or("");
    const std::string_view event_name = json_text(event, "name").value_or("");
    const std::optional<Nanos> begin = time_of(event, "ts");
    std::optional<Nanos> duration = time_of(event, "dur");
    if (duration) duration = std::min(*duration, INT64_MAX / 4);  // sums of ends stay in range
    dom::object args;
    if (!begin || !duration || event.at_key("args").get(args) != simdjson::SUCCESS) return;
    const std::int64_t correlation = json_integer(args, "correlation").value_or(kNone);
    if (category.ends_with("untime") || category.ends_with("driver")) {
      const auto kind = runtime_call_kind(event_name);
      if (kind)
        events_.runtime.push_back({*begin, *begin + *duration, correlation,
                                   json_integer(event, "tid").value_or(kNone), *kind});
      return;
    }
    const bool kernel = category == "kernel" || category == "Kernel";
    if (!kernel && !category.starts_with("gpu_mem") && !category.starts_with("Mem")) return;
    const bool communicates = args.at_key("Collective name").error() == simdjson::SUCCESS ||
                              !op_of_comm_kernel(event_name).empty();
    if (kernel && communicates) return;  // among the calls
    events_.work.push_back({*begin, *begin + *duration, correlation,
                            json_integer(args, "stream").value_or(0), name(event_name)});
  }

  StringId name(std::string_view text) { return tables_.strings.intern(std::string(text)); }

  // Reads a call (record_param_comms) or the kernel that carried it out.
  void read_comm(const dom::object& event) {
    dom::object args;
    if (event.at_key("args").get(args) != simdjson::SUCCESS) return;
    const std::optional<std::string_view> op = json_text(args, "Collective name");
    const std::string_view event_name = json_text(event, "name").value_or("");
    const bool host = event_name == "record_param_comms";
    if (!host && json_text(event, "cat").value_or("") != "kernel") return;
    if (!op || op->empty()) return lose("a collective without a name");
    const std::optional<Nanos> begin = time_of(event, "ts");
    if (!begin) return lose("a collective without a time");
    KinetoComm comm;
    comm.begin = *begin;
    comm.end = *begin + std::min(time_of(event, "dur").value_or(0), INT64_MAX / 2);
    comm.external_id = json_integer(args, "External id").value_or(kNone);
    comm.thread = json_integer(event, "tid").value_or(kNone);
    comm.op = name(*op);
    comm.dtype = name(dtype_from_torch(json_text(args, "dtype").value_or("")));
    comm.in = std::max<std::int64_t>(kNone, json_integer(args, "In msg nelems").value_or(kNone));
    comm.out = std::max<std::int64_t>(kNone, json_integer(args, "Out msg nelems").value_or(kNone));
    comm.splits_in = splits(args, "In split size");
    comm.splits_out = splits(args, "Out split size");
    comm.rank = rank_of(args, "Rank");
    comm.peer = rank_of(args, *op == "send" ? "Dst Rank" : "Src Rank");
    comm.seq = std::max<std::int64_t>(kNone, json_integer(args, "Seq").value_or(kNone));
    comm.group = read_group(args);
    if (host) {
      if (events_.pid == kNone) events_.pid = json_integer(event, "pid").value_or(kNone);
    } else {
      comm.redop = name(redop_of_comm_kernel(event_name));
      take_queue(args, comm);
      read_gpu(args);
    }
    (host ? events_.calls : events_.kernels).push_back(comm);
  }

  // Reads a kernel that does not name its call.
  void read_plain_kernel(const dom::object& event) {
    const std::string_view category = json_text(event, "cat").value_or("");
    const std::string_view kernel = json_text(event, "name").value_or("");
    const std::string_view op = op_of_comm_kernel(kernel);
    const std::optional<Nanos> begin = time_of(event, "ts");
    if (op.empty() || !begin || (category != "kernel" && category != "Kernel")) return;
    dom::object args;
    if (event.at_key("args").get(args) != simdjson::SUCCESS) return;
    KinetoComm comm;
    comm.begin = *begin;
    comm.end = *begin + std::min(time_of(event, "dur").value_or(0), INT64_MAX / 2);
    comm.op = name(op);
    comm.redop = name(redop_of_comm_kernel(kernel));
    comm.group = name(fmt::format("stream {}", json_integer(args, "stream").value_or(0)));
    take_queue(args, comm);
    read_gpu(args);
    events_.plain_kernels.push_back(comm);
  }

  static void take_queue(const dom::object& args, KinetoComm& kernel) {
    kernel.correlation = json_integer(args, "correlation").value_or(kNone);
    kernel.stream = json_integer(args, "stream").value_or(kNone);
  }

  // "args": {"device": 5, "stream": 20, …} of a kernel.
  void read_gpu(const dom::object& args) {
    if (events_.gpu == kNone) events_.gpu = json_integer(args, "device").value_or(kNone);
  }

  IntListId splits(const dom::object& args, std::string_view key) {
    const auto list = list_of(args, key);
    const bool usable = list && !list->empty() &&
                        std::all_of(list->begin(), list->end(), [](auto n) { return n >= 0; });
    return usable ? tables_.int_lists.intern(*list) : IntListId{};
  }

  // Collects what the event says about its group, and returns the group's name.
  StringId read_group(const dom::object& args) {
    std::string group(json_text(args, "Process Group Name").value_or(""));
    if (group.empty()) {  // until PyTorch 2.3 a number
      if (const auto id = json_integer(args, "Process Group ID")) group = std::to_string(*id);
    }
    KinetoGroup& known = events_.groups[group];
    if (known.desc.empty()) known.desc = json_text(args, "Process Group Description").value_or("");
    const std::int64_t size = json_integer(args, "Group size").value_or(kNone);
    if (known.size == kNone && size > 0) known.size = size;
    if (!known.ranks && known.size != kNone) {
      take_ranks(known, list_of(args, "Process Group Ranks"));
      take_stride(known, json_integer(args, "Global rank start"),
                  json_integer(args, "Global rank stride"));
    }
    return name(group);
  }

  static void take_ranks(KinetoGroup& group,
                         const std::optional<std::vector<std::int64_t>>& numbers) {
    if (group.ranks || !numbers || numbers->empty()) return;
    if (group.size != kNone && group.size != static_cast<std::int64_t>(numbers->size())) return;
    group.ranks = ranks_in(*numbers);
  }

  // Members given by the first one and a stride: start 1, stride 4, size 3 are 1, 5, 9.
  static void take_stride(KinetoGroup& group, std::optional<std::int64_t> start,
                          std::optional<std::int64_t> stride) {
    if (group.ranks || !start || !stride || *stride < 1 || *stride > kMaxWorldSize) return;
    // The size is not limited by the file's length, as that of a list would be.
    constexpr std::int64_t kMaxMembers = 1 << 16;
    if (group.size < 1 || group.size > kMaxMembers || *start < 0 || *start > kMaxWorldSize) return;
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; i < group.size; ++i) numbers.push_back(*start + i * *stride);
    group.ranks = ranks_in(numbers);
  }

  // Reads a step's range on the host: {"name": "ProfilerStep#12", "ts": …, "dur": …}.
  void read_step(const dom::object& event) {
    constexpr std::string_view kPrefix = "ProfilerStep#";
    std::string_view text = json_text(event, "name").value_or("");
    if (!text.starts_with(kPrefix)) return;
    if (json_text(event, "cat").value_or("") == "gpu_user_annotation") return;
    text.remove_prefix(kPrefix.size());
    KinetoStep step;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step.n);
    const std::optional<Nanos> begin = time_of(event, "ts");
    const std::optional<Nanos> duration = time_of(event, "dur");
    if (error != std::errc() || step.n < 0 || step.n > INT32_MAX || !begin || !duration) return;
    step.begin = *begin;
    step.end = *begin + *duration;
    events_.steps.push_back(step);
  }

  void scan_info(std::size_t at) {
    const std::size_t end = json_value_end(bytes_, at, kLongestInfo);
    dom::object info;
    if (end == kNpos || !parse(bytes_.substr(at, end - at), info)) {
      return lose("distributedInfo cannot be read");
    }
    events_.backend = json_text(info, "backend").value_or("");
    events_.rank = json_integer(info, "rank").value_or(kNone);
    events_.world_size = json_integer(info, "world_size").value_or(kNone);
    dom::array groups;
    if (info.at_key("pg_config").get(groups) != simdjson::SUCCESS) return;
    for (const dom::element element : groups) {
      dom::object config;
      if (element.get(config) == simdjson::SUCCESS) read_config(config);
    }
  }

  void read_config(const dom::object& config) {
    std::string group(json_text(config, "pg_name").value_or(""));
    KinetoGroup& known = events_.groups[group];
    const std::string_view desc = json_text(config, "pg_desc").value_or("");
    if (!desc.empty()) known.desc = desc;
    const std::int64_t size = json_integer(config, "pg_size").value_or(kNone);
    if (size > 0) known.size = size;
    // The program's own list counts more than what was derived from an event.
    if (auto numbers = list_of(config, "ranks"); numbers && !numbers->empty()) {
      known.ranks.reset();
      take_ranks(known, numbers);
    }
  }

  void read_host(std::size_t at) {
    const std::size_t end = json_value_end(bytes_, at, 1024);
    if (end == kNpos || end < at + 2 || bytes_[at] != '"') return;
    events_.host = bytes_.substr(at + 1, end - at - 2);
  }

  std::string_view bytes_;
  const std::string& file_;
  Tables& tables_;
  bool work_;
  KinetoEvents events_;
  dom::parser parser_;
  std::string repaired_;
  int resyncs_ = 0;
};

}  // namespace

namespace {

// NCCL's and RCCL's kernels, and the same of Moore Threads' and of MetaX' libraries, both MCCL,
// whose names differ in one letter: "mcclKernel_AllReduce_RING_SIMPLE_Sum___mt_bfloat16".
bool is_nccl_kernel(std::string_view name) {
  return (name.starts_with("nccl") || name.starts_with("mccl")) && contains_text(name, "ernel");
}

// The kernels of Intel's oneCCL: "oneccl_allreduce_pcie<sycl::half, Rt64_128_PCIE, RingTransmit>",
// "oneccl_reduce_scatter_large_main<…>", classes in its src/coll/algorithms/*/sycl/.
constexpr std::string_view kOneCcl = "oneccl_";

std::string_view op_of_oneccl_kernel(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kOps = {
      {{"allreduce", "allreduce"},
       {"allgather", "allgather_into_tensor"},
       {"reduce_scatter", "reduce_scatter_tensor"},
       {"alltoall", "alltoall_base"}}};
  name.remove_prefix(kOneCcl.size());
  for (const auto& [word, op] : kOps) {
    if (name.starts_with(word)) return op;
  }
  return {};
}

}  // namespace

std::string_view redop_of_comm_kernel(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kWords = {
      {{"_PreMulSum_", "premul_sum"},
       {"_SumPostDiv_", "avg"},
       {"_Sum_", "sum"},
       {"_Prod_", "product"}}};
  if (!is_nccl_kernel(name)) return {};
  if (name.find("Reduce") == kNpos) return {};  // for others "Sum" is a mere placeholder
  for (const auto& [word, redop] : kWords) {
    if (name.find(word) != kNpos) return redop;
  }
  return {};
}

std::string_view op_of_comm_kernel(std::string_view name) {
  // In this order, since "ReduceScatter" and "AllReduce" contain "Reduce". Messages and all-to-all
  // share one kernel, SendRecv; on AMD's GPUs most calls share one, Generic.
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kOps = {
      {{"AllReduce", "allreduce"},
       {"AllGather", "allgather_into_tensor"},
       {"ReduceScatter", "reduce_scatter_tensor"},
       {"Broadcast", "broadcast"},
       {"Reduce", "reduce"},
       {"SendRecv", "SendRecv"},
       {"AlltoAll", "alltoall_base"},
       {"AllToAll", "alltoall_base"},
       {"Kernel_Generic", "Generic"}}};
  if (name.starts_with(kOneCcl)) return op_of_oneccl_kernel(name);
  if (!is_nccl_kernel(name)) return {};
  for (const auto& [word, op] : kOps) {
    if (name.find(word) != kNpos) return op;
  }
  return {};
}

std::optional<KinetoRuntimeCall::Kind> runtime_call_kind(std::string_view call) {
  using Kind = KinetoRuntimeCall::Kind;
  const auto says = [&](std::string_view word) { return call.find(word) != kNpos; };
  if (says("Query")) return std::nullopt;
  if (says("DeviceSynchronize") || says("CtxSynchronize")) return Kind::sync_device;
  if (says("Synchronize")) return Kind::sync;
  if (says("WaitEvent")) return Kind::wait_event;
  if (says("Memcpy")) return Kind::copy;
  if (says("Launch") || says("Memset")) return Kind::queue;
  return std::nullopt;
}

Result<KinetoEvents> scan_kineto(std::string_view bytes, const std::string& file, Tables& tables,
                                 bool work) {
  if (!looks_like_kineto(bytes)) {
    return Error{"not a profile of torch.profiler", {file}, "it begins with {\"schemaVersion\": 1"};
  }
  return KinetoScanner(bytes, file, tables, work).scan();
}

bool looks_like_kineto(std::string_view bytes) {
  JsonMembers top(bytes.substr(0, kRecognisedIn));
  bool version = false;
  bool info = false;
  bool other = false;
  while (const auto member = top.next()) {
    version |= member->key == "schemaVersion";
    info |= member->key == "distributedInfo";
    other |= member->key == "traceEvents" || member->key == "deviceProperties" ||
             member->key == "baseTimeNanoseconds";
    if (other && (version || info)) return true;
    if (version && info) return true;
  }
  return false;
}

}  // namespace lockstep::trace
