#include "trace/formats/nsys/events.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"

namespace lockstep::trace {

namespace {

// Processes of a node that use a GPU, at most.
constexpr std::size_t kMaxProcesses = 1024;
constexpr std::int64_t kLatestTime = INT64_MAX / 8;  // nanoseconds; sums stay in range

std::int64_t process_in(std::int64_t global) { return (global >> 24U) & 0xFFFFFF; }

// 16 of "iteration 16", "iter_16", "Step#16" or "ProfilerStep#16"; nothing: the range is not a
// step.
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

// Removes ranges within others: "step 0" in "iteration 16".
void keep_outer(std::vector<KinetoStep>& steps) {
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

}  // namespace

std::optional<NsysTimes> nsys_times(std::optional<std::int64_t> begin,
                                    std::optional<std::int64_t> end) {
  if (!begin || !end || *begin < 0 || *end < *begin || *end > kLatestTime) return std::nullopt;
  return NsysTimes{*begin, *end};
}

void NsysEvents::lose(std::string what) {
  ++damage_count_;
  if (damage_.size() < RankTrace::kDamagedKept) damage_.push_back(std::move(what));
}

const NsysEvents::Name& NsysEvents::name(Maybe index) {
  const auto [found, is_new] = names_.try_emplace(index.value_or(-1));
  Name& out = found->second;
  if (!is_new) return out;
  const std::string text = text_of_(found->first);
  out.id = tables_.strings.intern(text);
  out.op = op_of_comm_kernel(text);
  out.redop = redop_of_comm_kernel(text);
  out.kind = runtime_call_kind(text);
  out.launches_graph = text.find("GraphLaunch") != std::string::npos;
  return out;
}

// The events of the process of a globalPid or globalTid; null if there are too many processes.
KinetoEvents* NsysEvents::events_of(Maybe global) {
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

KinetoEvents* NsysEvents::place_of(const Work& work, std::int64_t& stream) {
  if (!work.times) {
    lose("work of a GPU without a time");
    return nullptr;
  }
  KinetoEvents* const events = events_of(work.process);
  if (events == nullptr) return nullptr;
  const std::int64_t device = std::clamp<std::int64_t>(work.device.value_or(0), 0, kMaxProcesses);
  if (events->gpu == kNone) events->gpu = device;
  stream = std::clamp<std::int64_t>(work.stream.value_or(0), 0, UINT32_MAX);
  // Streams of another device may have the same numbers.
  if (device != events->gpu) stream += (device + 1) << 32U;
  return events;
}

void NsysEvents::add_work(const Work& work, StringId name) {
  std::int64_t stream = 0;
  KinetoEvents* const events = place_of(work, stream);
  if (events == nullptr || !file_.work) return;
  events->work.push_back(
      {work.times->begin, work.times->end, work.correlation.value_or(kNone), stream, name});
}

void NsysEvents::take_kernel(const Work& work, Maybe index) {
  const Name& called = name(index);
  if (called.op.empty()) return add_work(work, called.id);
  std::int64_t stream = 0;
  KinetoEvents* const events = place_of(work, stream);
  if (events == nullptr) return;
  KinetoComm comm;
  comm.begin = work.times->begin;
  comm.end = work.times->end;
  comm.op = tables_.strings.intern(std::string(called.op));
  comm.redop = tables_.strings.intern(std::string(called.redop));
  comm.group = tables_.strings.intern(fmt::format("stream {}", stream));
  comm.correlation = work.correlation.value_or(kNone);
  comm.stream = stream;
  events->plain_kernels.push_back(comm);
}

void NsysEvents::take_copy(const Work& work, std::int64_t kind) {
  add_work(work, tables_.strings.intern(std::string(copy_name(kind))));
}

void NsysEvents::take_fill(const Work& work) { add_work(work, tables_.strings.intern("Memset")); }

void NsysEvents::take_graph(Work work) {
  // CUPTI could not collect the times.
  if (work.times && work.times->end == 0) work.times.reset();
  // The graph begins on the host: CUpti_ActivityGraphTrace2.
  if (work.device == INT32_MAX) work.device.reset();
  if (work.times && events_of(work.process) != nullptr)
    ++graphs_[process_in(work.process.value_or(0))].whole;
  add_work(work, tables_.strings.intern("CUDA graph"));
}

void NsysEvents::take_api_call(Maybe begin, Maybe end, Maybe thread, Maybe correlation,
                               Maybe index) {
  const Name called = index ? name(index) : Name{};
  const auto kind = called.kind;
  if (!kind) return;
  const auto times = nsys_times(begin, end);
  if (!times) return lose("a call of CUDA without a time");
  KinetoEvents* const events = events_of(thread);
  if (events == nullptr) return;
  events->runtime.push_back(
      {times->begin, times->end, correlation.value_or(kNone), thread.value_or(kNone), *kind});
  if (called.launches_graph && correlation)
    graphs_[process_in(thread.value_or(0))].launches.push_back(*correlation);
}

void NsysEvents::take_range(std::string_view text, Maybe begin, Maybe end, Maybe thread) {
  const auto number = step_in_text(text);
  const auto times = nsys_times(begin, end);
  if (!number || !times) return;
  if (KinetoEvents* const events = events_of(thread))
    events->steps.push_back({*number, times->begin, times->end});
}

std::size_t NsysEvents::launches_without_work(std::int64_t process) const {
  const auto graphs = graphs_.find(process);
  const auto found = processes_.find(process);
  if (graphs == graphs_.end() || graphs->second.launches.empty() || found == processes_.end())
    return 0;
  std::vector<std::int64_t> there;
  for (const KinetoWork& work : found->second.work) there.push_back(work.correlation);
  for (const KinetoComm& kernel : found->second.plain_kernels) there.push_back(kernel.correlation);
  std::sort(there.begin(), there.end());
  const std::vector<std::int64_t>& launches = graphs->second.launches;
  return static_cast<std::size_t>(
      std::count_if(launches.begin(), launches.end(), [&](std::int64_t correlation) {
        return !std::binary_search(there.begin(), there.end(), correlation);
      }));
}

void NsysEvents::say_what_graphs_hide(std::int64_t process, KinetoEvents& events) const {
  const auto say = [&](std::uint64_t count, std::string what) {
    if (count == 0) return;
    events.damage_count += count;
    events.damage.insert(events.damage.begin(), std::move(what));
    if (events.damage.size() > RankTrace::kDamagedKept) events.damage.pop_back();
  };
  constexpr const char* kHow = "nsys profile --cuda-graph-trace=node records its kernels";
  const std::size_t missing = launches_without_work(process);
  say(missing, fmt::format("{} of a CUDA graph left no work in the report, and computes nothing "
                           "here: {}",
                           plural(missing, "launch", "launches"), kHow));
  const auto graphs = graphs_.find(process);
  const std::uint64_t whole = graphs == graphs_.end() ? 0 : graphs->second.whole;
  say(whole, fmt::format("{} of a CUDA graph recorded as a whole: each counts as one kernel, and "
                         "calls of NCCL in it are not seen; {}",
                         plural(whole, "launch", "launches"), kHow));
}

Error NsysEvents::no_work() const {
  const bool of_graphs = std::any_of(graphs_.begin(), graphs_.end(),
                                     [](const auto& one) { return !one.second.launches.empty(); });
  if (of_graphs)
    return {"this report shows no work of a GPU but launches of CUDA graphs, without their kernels",
            {file_.name},
            "record it with nsys profile --trace=cuda,nvtx --cuda-graph-trace=node"};
  return {"this report shows no work of a GPU",
          {file_.name},
          "record it with nsys profile --trace=cuda,nvtx"};
}

Result<std::vector<RankTrace>> NsysEvents::assemble(bool whole) {
  // Processes without a GPU (data loaders) are not ranks.
  std::erase_if(processes_, [](const auto& one) { return one.second.gpu == kNone; });
  if (processes_.empty()) return no_work();
  if (const Status known = identify(); !known) return known.error();
  std::vector<RankTrace> out;
  for (auto& [process, events] : processes_) {
    events.whole = whole;
    if (out.empty()) {
      events.damage = std::move(damage_);
      events.damage_count = damage_count_;
    }
    say_what_graphs_hide(process, events);
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

// A single process is the rank in the file's name. Several are the ranks of a node, in the order of
// their devices, if each has a device of its own.
Status NsysEvents::identify() {
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

}  // namespace lockstep::trace
