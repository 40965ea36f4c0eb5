// JobRecord: the ring file of this process, for programs that know nothing of Lockstep.
//
//   LOCKSTEP_RECORD_DIR         where the ring files go; not set: nothing is recorded
//   LOCKSTEP_RECORD_EVENTS      how many of the newest events are kept (default 131072, 8 MiB)
//   LOCKSTEP_RECORD_HUNG_AFTER  seconds without any event, while a call is not complete, before
//                               the end mark says `hung` until something moves (60; 0: never)
//   LOCKSTEP_RECORD_VALUES      1: a Python program's models are watched (lockstep_watch_all.py)
//
// A rank that records nothing for as long and waits in no call writes the stacks of its Python
// program to rank_<r>.stack, which is removed when it goes on.
//
// The rank and the number of ranks are those of the launcher (launch_settings.h); of a process
// without one, those of the first group that is used.
//
// Never destroyed: calls may come, and complete, until the process is gone. The end mark says
// whether the program exited with 0; a process that is killed leaves none.
#pragma once

#include <unistd.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "runtime/record/c10d/gpu_of_rank.h"
#include "runtime/record/c10d/recorded_group.h"
#include "runtime/record/c10d/work_watch.h"
#include "runtime/record/recorder.h"
#include "trace/formats/ring/hang_watch.h"

namespace lockstep::runtime {

class JobRecord {
 public:
  // The process's. What keeps it from recording is said on standard error, once.
  static JobRecord& of_process();
  // The process ends by _exit(), which runs no handlers. Only a good end is marked: others come
  // from whoever ends a hung process, often in the handler of a signal.
  static void at_immediate_exit(int status);

  // The library was loaded. From here on, a Python program that ends with an error before it made a
  // group leaves a file, too, where a launcher started it as a rank. It holds the exception, or the
  // exit status where the program had not imported torch.
  void follow_from_start();

  // The program has just made this group: it is written, into the process's file, which is made
  // with the first one.
  void begin(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

  // The group's; one that begin() was not told of is written now. Null: nothing is recorded of it,
  // because there is nowhere to write to, or because it does not say which ranks are in it.
  RecordedGroup* group(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

  // The process works on that device: a call's tensors are there. After group() was not null.
  void uses(c10::Device device) { gpu_->uses(device); }

  // What the Python program says of the call that it makes on this thread: its line, and the tag
  // trace::ring::kJoinTag where it is one of Join's, kFunctionalTag where a functional collective
  // makes it. Nothing where it is not Python.
  CallOrigin origin();

  // Whether there is a file: once group() was not null.
  bool is_open() const;
  // The recorder of group()'s owner; valid once group() was not null.
  Recorder& recorder() { return *recorder_; }
  // What sees when the works of a call complete: those of a device, or of a backend that says so by
  // itself. Null: their futures show it. `group`: one that group() knows.
  WorkWatch* watch(const c10d::ProcessGroup& group, bool on_device);

  // Writes the stacks of the Python program, and removes them again if it has gone on meanwhile. On
  // a thread of its own: it waits for the GIL.
  void write_stacks();

 private:
  JobRecord() = default;
  void try_to_open(const c10d::ProcessGroup& first);  // with mutex_ held
  RecordedGroup* known_or_new(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                              RecordedGroup::Made made);  // the same
  void open(const c10d::ProcessGroup& first);
  // Makes the file of the rank that the options name. False: standard error says why not.
  bool make_ring(trace::RingWriter::Options options);
  // An exception that the program does not catch.
  void raised(const std::string& what);
  // The same, of the exception that Ctrl-C raises.
  void interrupted(const std::string& what);
  // True if a backend of the group reports completions.
  bool hook_into_all(c10d::ProcessGroup& group);
  WorkWatch& open_watch();
  void start_hang_watch();
  void look_for_hang(std::int64_t now);
  // Where a rank stands that does nothing and waits in no call is written to rank_<r>.stack beside
  // the ring file, until it goes on.
  void look_for_standstill(std::int64_t now);
  // What other threads hold of calls that are over, before Python ends.
  void let_go_of_calls();
  std::vector<std::int32_t> ranks_of(const c10d::ProcessGroup& group) const;
  // Says beside the file of an earlier attempt that the launcher started this rank again. Otherwise
  // a rank that is killed before it makes a group would leave no sign.
  static void note_restart();
  static void at_exit(int status, void* job);
  static void at_exit_without_group(int status, void* job);

  std::mutex mutex_;
  bool tried_ = false;          // to open the file; guarded by mutex_
  std::string loaded_version_;  // of LibTorch; empty: not known yet
  std::string raised_early_;    // before there was a file; guarded by mutex_
  int world_size_ = 0;
  std::unique_ptr<trace::RingWriter> ring_;
  std::unique_ptr<Recorder> recorder_;
  std::optional<GpuOfRank> gpu_;
  std::unique_ptr<WorkWatch> watch_;
  pid_t loaded_by_ = 0;   // the process that loaded this library; others were forked from it
  pid_t own_pid_ = 0;     // the process that made the file
  std::mutex end_mutex_;  // guards the end mark, and what follows
  std::optional<trace::HangWatch> hang_, standstill_;
  std::string stack_file_;
  bool stands_still_ = false;
  bool ended_ = false;
  bool interrupted_ = false;  // then the end mark stays, and the stack
  struct Known {
    c10::weak_intrusive_ptr<c10d::ProcessGroup> keeps_the_address;  // no other group gets it
    std::unique_ptr<RecordedGroup> recorded;                        // null: it is left out
    bool has_completion = false;  // its backends say when calls complete
  };
  std::map<const c10d::ProcessGroup*, Known> groups_;
  std::map<std::string, int> lives_;  // how many groups there were of a name, one after the other
};

}  // namespace lockstep::runtime
