// liblockstep_record.so: records the collectives of a program that was not made for it.
//
//   LD_PRELOAD=liblockstep_record.so LOCKSTEP_RECORD_DIR=traces ./program
//   torch.ops.load_library("liblockstep_record.so")     # in Python, before the first collective
//
// All of c10d's calls, those of LibTorch's Reducer included, go through the dispatcher, as
// operators of the library `c10d`. A kernel of ours stands in front of the transport's: it records
// the call, passes it on, and wraps the handle that comes back, so that waits and completions are
// seen. The call is in the ring file before the transport sees it.
//
// It stands at the key BackendSelect, which is just above the devices' keys and in every call: also
// in those made below autograd and below a tensor subclass (DTensor, functional collectives), and
// in inference mode. A call passes it once.
//
// The file begins with the first group that the program makes: a rank that fails before its first
// call has one, too. One that fails before that leaves a file with its exception. Preloaded, it
// writes groups as they are made, so that their order is known.
//
// Not seen: the brackets of coalesced calls, and what does not go through c10d (symmetric memory).
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/custom_class.h>
#include <torch/library.h>
#include <torch/version.h>

#include "runtime/record/c10d/recording_work.h"
#include "runtime/record/preload/dispatched_call.h"
#include "runtime/record/preload/future_waits.h"
#include "runtime/record/preload/job_record.h"

namespace lockstep::runtime {
namespace {

void pass_on(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);
  op.redispatchBoxed(keys & below, stack);
}

// A call whose operator returned no handle. NCCL's collectives do so when they are synchronous:
// they are in the caller's stream, and an event after them shows when they complete. Its messages
// do so inside a bracket of coalesced calls only, and are not in the stream yet: nothing shows it,
// and they stay open.
void follow_without_work(const DispatchedCall& call, Recorder& recorder, std::uint32_t id,
                         WorkWatch* watch) {
  const std::optional<c10::Device> device = call.cuda_device();
  if (watch == nullptr || !device) return recorder.complete(id);
  if (trace::is_point_to_point(call.fields.op)) return;
  try {
    watch->follow(c10::make_intrusive<StreamWork>(*device), id);
  } catch (const c10::Error&) {  // NOLINT(bugprone-empty-catch): the program's next call says so
  }
}

// The handle that the operator returned last, which records from now on.
void wrap_work(torch::jit::Stack& stack, const DispatchedCall& call, Recorder& recorder,
               std::uint32_t id, WorkWatch* watch) {
  auto work = stack.back().toCustomClass<c10d::Work>();
  if (!work) return follow_without_work(call, recorder, id, watch);
  c10::intrusive_ptr<c10d::Work> wrapped =
      c10::make_intrusive<PreloadedWork>(std::move(work), recorder, id, watch);
  stack.back() = c10::IValue(std::move(wrapped));
}

void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const auto call = read_call(schema, torch::jit::last(*stack, schema.arguments().size()));
  JobRecord& job = JobRecord::of_process();
  // Tensors without values are not sent: a program is being traced, or its sizes are computed.
  RecordedGroup* const group = call && !call->is_meta() ? job.group(call->group) : nullptr;
  if (group == nullptr) return pass_on(op, keys, stack);
  Recorder& recorder = job.recorder();
  const std::optional<c10::Device> device = call->cuda_device();
  if (device) job.uses(*device);
  const std::uint32_t id = group->issue(call->recorded(), job.origin());
  const bool blocks = schema.returns().empty();
  if (blocks) recorder.wait(id);
  try {
    pass_on(op, keys, stack);
  } catch (const std::exception& error) {
    const std::string what = message_of(error);
    recorder.complete(id, what);
    if (blocks) {
      recorder.wait_failed(id, what);
    } else {
      recorder.raised(what, id);
    }
    throw;
  }
  if (!blocks) {
    return wrap_work(*stack, *call, recorder, id, job.watch(*call->group, device.has_value()));
  }
  recorder.complete(id);
  recorder.waited(id);
}

void register_all(torch::Library& library) {
  for (const char* const name : recorded_operators())
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&record>());
}

}  // namespace
}  // namespace lockstep::runtime

TORCH_LIBRARY_IMPL(c10d, BackendSelect, library) { lockstep::runtime::register_all(library); }

namespace {
__attribute__((constructor)) void follow_from_start() {
  lockstep::runtime::JobRecord::of_process().follow_from_start();
}
}  // namespace

// For whoever looks for the recorder of a torch: `lockstep record` reads this text in the file.
extern "C" __attribute__((visibility("default"), used)) const char lockstep_records_torch[] =
    "LOCKSTEP_RECORDS_TORCH=" TORCH_VERSION;

// By this function Python says that it has made a group. In front of LibTorch's, where this library
// is preloaded; else the first call opens the file.
namespace c10d {
C10_EXPORT void register_process_group(const std::string& name,
                                       const c10::intrusive_ptr<ProcessGroup>& group) {
  using Register = decltype(&register_process_group);
  static const auto next = [] {
    Dl_info own{};  // the function's name as the linker knows it, which is LibTorch's, too
    ::dladdr(reinterpret_cast<const void*>(&register_process_group), &own);
    return reinterpret_cast<Register>(::dlsym(RTLD_NEXT, own.dli_sname));
  }();
  // The program asked for a group: a record that cannot begin must not fail it.
  try {
    lockstep::runtime::JobRecord::of_process().begin(group);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "liblockstep_record: %s\n", error.what());
  }
  if (next != nullptr) next(name, group);
}
}  // namespace c10d

// In front of the C library's, where this library is preloaded.
extern "C" __attribute__((visibility("default"))) void _exit(int status) {
  lockstep::runtime::JobRecord::at_immediate_exit(status);
  for (;;) ::syscall(SYS_exit_group, status);
}
extern "C" __attribute__((visibility("default"))) void _Exit(int status) noexcept {
  ::_exit(status);
}
