#include "runtime/record/nccl/profiler.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include "runtime/record/nccl/device_calls.h"
#include "trace/nccl_calls.h"

namespace lockstep::runtime {
namespace {

using namespace nccl_profiler;

// The kind of a handle, in its three highest bits; below them a number.
enum class Tag : std::uint64_t {
  none = 0,
  call = 1,      // a collective that the program called; the number of its slot
  captured = 2,  // one that was captured in a graph; its signature in the ring file
  task = 3,      // a launched call; the number of its slot
  kernel = 4,    // a channel of one
};
constexpr unsigned kTagShift = 61;

void* make_handle(Tag tag, std::uint64_t number) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): opaque to NCCL
  return reinterpret_cast<void*>(static_cast<std::uint64_t>(tag) << kTagShift | number);
}

struct Handle {
  Tag tag;
  std::uint64_t number;

  explicit Handle(const void* handle) {
    const auto word = reinterpret_cast<std::uintptr_t>(handle);
    tag = static_cast<Tag>(word >> kTagShift);
    number = word & ((std::uint64_t{1} << kTagShift) - 1);
  }
};

// NCCL's names are short; anything longer is not one of them.
std::string_view text_of(const char* text) {
  constexpr std::size_t kLongest = 64;
  if (text == nullptr) return {};
  return {text, ::strnlen(text, kLongest)};
}

// ncclDatatypeToString, by the numbers of ncclDataType_t; kNone: "Unknown" and others.
std::int32_t dtype_number(const char* name) {
  constexpr std::array<std::string_view, trace::kNcclDtypes.size()> kNames = {
      "ncclInt8",    "ncclUint8",    "ncclInt32",      "ncclUint32",
      "ncclInt64",   "ncclUint64",   "ncclFloat16",    "ncclFloat32",
      "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};
  const std::string_view text = text_of(name);
  const auto* const found = std::find(kNames.begin(), kNames.end(), text);
  return found == kNames.end() ? trace::kNone : static_cast<std::int32_t>(found - kNames.begin());
}

// Nothing for a call without a name, which cannot be identified.
std::optional<NcclCall> call_of(const char* func, std::size_t count, const char* datatype) {
  const std::string_view name = text_of(func);
  if (name.empty()) return std::nullopt;
  NcclCall out;
  if (const auto op = trace::nccl_op(name)) {
    out.op = *op;
  } else {
    out.other_op = name;
  }
  out.count = static_cast<std::int64_t>(std::min<std::size_t>(count, INT64_MAX));
  out.dtype = dtype_number(datatype);
  return out;
}

std::string hex(std::uint64_t value) {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, 16).ptr;
  return "0x" + std::string(digits.data(), end);
}

}  // namespace

void* Profiler::open(std::uint64_t id, std::string_view name, std::int64_t group_rank,
                     std::int64_t size) {
  return job_.open(
      {"comm " + hex(id), std::string(name), group_rank, size, nullptr, cuda::current_device()});
}

void Profiler::close(void* context) {
  if (context != nullptr) static_cast<Communicator*>(context)->close();
}

int Profiler::activation_mask(int version) {
  if (!job_.records()) return 0;
  std::uint64_t mask = kColl | kP2p;
  if (version >= 5) mask |= kCollApi;
  if (completions_) mask |= kKernelCh;
  return static_cast<int>(mask);
}

void* Profiler::launched(Communicator& communicator, std::uint32_t id, std::uint32_t channels) {
  const std::uint64_t number = slots_.add(communicator.rank(), id);
  slots_.launch(number, channels);
  return make_handle(Tag::task, number);
}

void* Profiler::start_call(Communicator& communicator, const nccl_profiler::CollCall& call,
                           std::uint64_t user_tag) {
  std::optional<NcclCall> fields = call_of(call.func, call.count, call.datatype);
  if (!fields) return nullptr;
  fields->root = call.root;
  const trace::RingWriter::SignatureRef signature = communicator.signature(*fields);
  if (call.graph_captured) return make_handle(Tag::captured, signature.id);
  const std::uint32_t id = communicator.issue(signature, tags_.of(communicator.ring(), user_tag));
  return make_handle(Tag::call, slots_.add(communicator.rank(), id));
}

// `parent`: of version 5, what start_call gave; nothing: the interface has no such event.
void* Profiler::start_coll(Communicator& communicator, const nccl_profiler::CollTask& task,
                           std::optional<void*> parent, std::uint64_t user_tag) {
  if (!parent) {
    std::optional<NcclCall> fields = call_of(task.func, task.count, task.datatype);
    if (!fields) return nullptr;
    fields->root = task.root;
    return launched(communicator, communicator.issue(*fields), task.channels);
  }
  const Handle call(*parent);
  if (call.tag == Tag::captured) {
    const trace::RingWriter::SignatureRef signature{static_cast<std::uint32_t>(call.number)};
    const CallLabel label = tags_.of(communicator.ring(), user_tag);
    return launched(communicator, communicator.issue(signature, label), task.channels);
  }
  // Otherwise it is another part of a call that is recorded already, or its slot was reused.
  if (call.tag != Tag::call || !slots_.launch(call.number, task.channels)) return nullptr;
  return make_handle(Tag::task, call.number);
}

void* Profiler::start_p2p(Communicator& communicator, const nccl_profiler::P2pTask& task,
                          std::uint64_t user_tag) {
  std::optional<NcclCall> fields = call_of(task.func, task.count, task.datatype);
  if (!fields || !trace::is_point_to_point(fields->op) || task.peer == communicator.group_rank())
    return nullptr;
  fields->peer = task.peer;
  const CallLabel label = tags_.of(communicator.ring(), user_tag);
  return launched(communicator, communicator.issue(*fields, label), task.channels);
}

void* Profiler::start_kernel(void* parent) {
  const Handle task(parent);
  if (task.tag != Tag::task) return nullptr;
  slots_.started(task.number);
  return make_handle(Tag::kernel, task.number);
}

void* Profiler::start(void* context, const nccl_profiler::Event4& event) {
  if (event.type == kKernelCh) return start_kernel(event.parent);
  if (context == nullptr) return nullptr;
  auto& communicator = *static_cast<Communicator*>(context);
  if (event.type == kColl) return start_coll(communicator, event.coll, std::nullopt);
  if (event.type == kP2p) return start_p2p(communicator, event.p2p);
  return nullptr;
}

void* Profiler::start(void* context, const nccl_profiler::Event5& event) {
  if (event.type == kKernelCh) return start_kernel(event.parent);
  if (context == nullptr) return nullptr;
  auto& communicator = *static_cast<Communicator*>(context);
  if (event.type == kCollApi) return start_call(communicator, event.coll_api);
  if (event.type == kColl) return start_coll(communicator, event.coll.task, event.parent);
  if (event.type == kP2p) return start_p2p(communicator, event.p2p.task);
  return nullptr;
}

void* Profiler::start(void* context, const nccl_profiler::Event7& event) {
  if (event.type == kKernelCh) return start_kernel(event.parent);
  if (context == nullptr) return nullptr;
  auto& communicator = *static_cast<Communicator*>(context);
  if (event.type == kCollApi)
    return start_call(communicator, event.coll_api.call, event.coll_api.user_tag);
  if (event.type == kColl)
    return start_coll(communicator, event.coll.task, event.parent, event.coll.user_tag);
  if (event.type == kP2p) return start_p2p(communicator, event.p2p.task, event.p2p.user_tag);
  return nullptr;
}

void Profiler::stop(void* handle) {
  // The stop of a call or a task says only that NCCL has enqueued it.
  if (const Handle event(handle); event.tag == Tag::kernel) slots_.stopped(event.number);
}

namespace {

constexpr std::streamoff kLargestFile = 64 << 20;

bool number_of(std::string_view text, std::uint64_t& out) {
  int base = 10;
  if (text.starts_with("0x")) {
    base = 16;
    text.remove_prefix(2);
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

UserTags::UserTags(const char* file) {
  if (file == nullptr || *file == '\0') return;
  std::ifstream lines(file, std::ios::binary | std::ios::ate);
  if (!lines || lines.tellg() > kLargestFile) {
    std::fprintf(stderr,
                 "liblockstep_nccl_profiler: the tags have no names: LOCKSTEP_RECORD_TAGS names a "
                 "file that cannot be read, or that is larger than 64 MiB\n");
    return;
  }
  lines.seekg(0);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    std::uint64_t tag = 0;
    if (!(words >> word) || !number_of(word, tag)) continue;
    std::vector<std::string>& names = names_[tag];
    names.clear();
    while (words >> word) names.push_back(word);
  }
}

CallLabel UserTags::of(trace::RingWriter& ring, std::uint64_t tag) {
  if (tag == 0) return {};
  const std::lock_guard lock(mutex_);
  const std::pair key(static_cast<const trace::RingWriter*>(&ring), tag);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  CallLabel label;
  if (const auto names = names_.find(tag); names != names_.end()) {
    label.what = ring.intern_names(names->second);
  } else if (known_.size() < kMaxKnown) {
    label.tag = ring.intern(std::to_string(tag));
  }
  if (known_.size() < kMaxKnown) known_.emplace(key, label);
  return label;
}

}  // namespace lockstep::runtime
