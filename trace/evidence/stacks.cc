// Stacks of a job's processes, and in them the frame that holds each one up. Five forms, one
// process in a file or several:
//
//   py-spy dump --pid 12          Process 12: python train.py
//                                 Thread 12 (idle): "MainThread"
//                                     wait (threading.py:320)
//   py-spy dump --json            [{"pid":12,"thread_name":"MainThread","frames":[{"name":"wait",…
//   faulthandler, PyTorch's       Thread 0x00007f01 (most recent call first):
//   debug server (/stacks)          File "train.py", line 12 in train
//   torch_npu, beside a dump      pid: 12
//   (hccl_trace_rank_3_py_…)      thread <_MainThread(MainThread, started 1399)>:
//                                   File "train.py", line 12, in <module>       the outermost first
//                                     main()
//   gdb -p 12 -batch -ex "thread  Thread 1 (Thread 0x7f01 (LWP 12) "python"):
//       apply all bt", or "bt"    #0  0x00007f01 in syscall () from /lib/libc.so.6
//
// Lines may have a launcher's label, "[rank3]: " or "worker-3  | ", and a time. The label is what
// stands before a heading ("Process 12: …", "Thread 12 …"); lines of several labels may be mixed.
//
// The main thread of a process counts: py-spy's "MainThread" (else its first), faulthandler's last,
// gdb's thread 1. faulthandler's "Current thread" is the one that wrote the stacks, which may be a
// watchdog's. The rank follows from the file's name, a heading "Rank 3: …" (the debug server's
// pages and dumps), the label, or the process id.
//
// What a stack does not show: since when, and whether the process goes on meanwhile.

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "trace/evidence/evidence.h"
#include "trace/evidence/frames.h"
#include "trace/evidence/line_labels.h"
#include "trace/formats/log_lines.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

// Functions that only wait for whatever called them, by gdb.
bool only_waits(std::string_view function) {
  static constexpr std::array<std::string_view, 14> kNames = {
      "syscall",    "futex",      "pthread_cond_",
      "__lll_lock", "nanosleep",  "clock_nanosleep",
      "poll",       "epoll_wait", "sched_yield",
      "select",     "__gthread_", "std::condition_variable",
      "std::__",    "??"};
  std::string_view name = function;
  while (name.starts_with('_') && !name.starts_with("__lll") && !name.starts_with("__gthread")) {
    name.remove_prefix(1);
  }
  // "__GI___futex_abstimed_wait_cancelable64": glibc's own name of its function.
  if (name.starts_with("GI_"))
    name.remove_prefix(std::min(name.find_first_not_of('_', 2), name.size()));
  return std::any_of(kNames.begin(), kNames.end(), [&](std::string_view n) {
    return name.starts_with(n) || function.starts_with(n);
  });
}

// "wait (cond=0x55a7, mutex=0x55b0) at ./cond.c:618" without its arguments, whose values differ
// between processes: "wait at ./cond.c:618". "f(int) () from lib.so" has no values.
std::string without_values(std::string_view function) {
  const std::size_t open = function.find(" (");
  if (open == kNpos || !contains_text(function.substr(open), "=")) return std::string(function);
  const std::size_t close = function.rfind(") ");
  const std::string_view behind =
      close == kNpos || close < open ? std::string_view() : function.substr(close + 1);
  return fmt::format("{}{}", function.substr(0, open), behind);
}

// "gloo::allgather(gloo::AllgatherOptions&) () from lib.so": "gloo::allgather". Empty: it is no
// collective of Gloo's, which runs in a thread of the process group.
std::string_view gloo_collective(std::string_view function) {
  constexpr std::string_view kGloo = "gloo::";
  if (!function.starts_with(kGloo)) return {};
  const std::string_view name = function.substr(0, function.find_first_of("( "));
  return contains_text(name.substr(kGloo.size()), ":") ? std::string_view() : name;
}

// Functions of torch.distributed that create a process group, in which the ranks wait for one
// another: "new_group (torch/distributed/distributed_c10d.py:7284)".
bool creates_group(std::string_view words) {
  static constexpr std::array<std::string_view, 6> kNames = {
      "new_group",          "_new_group_with_tag", "_new_process_group_helper",
      "init_process_group", "split_group",         "_store_based_barrier"};
  const std::string_view name = words.substr(0, words.find(' '));
  return contains_text(words, "torch/distributed/distributed_c10d.py:") &&
         std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

// "#0  0x00007f01 in poll () from /lib/libc.so.6": the first line of what gdb's `bt` prints.
bool begins_backtrace(std::string_view text) {
  return text.starts_with("#0  0x") && contains_text(text, " in ");
}

constexpr std::string_view kPid = "pid: ";

// The heading of a thread as torch_npu writes it: "thread <_MainThread(MainThread, started
// 1399)>:", "thread 139872313337664:".
bool is_thread_of_traceback(std::string_view text) {
  constexpr std::string_view kThread = "thread ";
  if (!text.starts_with(kThread) || !text.ends_with(':')) return false;
  const std::string_view name = text.substr(kThread.size(), text.size() - kThread.size() - 1);
  return (name.starts_with('<') && name.ends_with('>')) ||
         (!name.empty() && name.find_first_not_of("0123456789") == kNpos);
}

// A frame in words: "all_reduce (torch/distributed/distributed_c10d.py:1700)".
struct Frame {
  std::string words;
  bool library = false;  // for gdb: a function that only waits
};

// The lines that py-spy would have written as text.
std::vector<std::string> lines_of_json(std::string_view bytes) {
  std::vector<std::string> out;
  const auto threads = nlohmann::json::parse(bytes, nullptr, /*allow_exceptions=*/false);
  if (!threads.is_array()) return out;
  const auto text_of = [](const nlohmann::json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto number_of = [](const nlohmann::json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : kNone;
  };
  std::int64_t process = kNone;
  for (const nlohmann::json& thread : threads) {
    if (!thread.is_object()) continue;
    if (const std::int64_t pid = number_of(thread, "pid"); pid != process) {
      process = pid;
      out.push_back(fmt::format("Process {}: python", pid));
    }
    out.push_back(fmt::format("Thread {} (idle): \"{}\"", number_of(thread, "os_thread_id"),
                              text_of(thread, "thread_name")));
    const auto frames = thread.find("frames");
    if (frames == thread.end() || !frames->is_array()) continue;
    for (const nlohmann::json& frame : *frames) {
      if (!frame.is_object()) continue;
      std::string file = text_of(frame, "short_filename");
      if (file.empty()) file = text_of(frame, "filename");
      out.push_back(
          fmt::format("    {} ({}:{})", text_of(frame, "name"), file, number_of(frame, "line")));
    }
  }
  return out;
}

// The stacks of one process, or of several one after the other: what has one label.
class OneOutput {
 public:
  OneOutput(const TraceFile& file, FileEvidence& out, std::optional<Rank> rank, std::string host)
      : file_(file), out_(out), rank_(rank), host_(std::move(host)) {}

  // `number`: of the line.
  void take(std::string_view text, int number) {
    number_ = number;
    take_line(text);
  }
  void end() { end_process(); }

 private:
  enum class Form : std::uint8_t { none, py_spy, faulthandler, traceback, gdb };

  void take_line(std::string_view text) {
    if (take_heading(text)) return;
    if (text.starts_with("Process ") && contains_text(text, ": ")) {
      end_process();
      pid_ = number_after(text, "Process ").value_or(kNone);
      return;
    }
    if (text.starts_with(kPid)) {
      end_process();
      pid_ = number_after(text, kPid).value_or(kNone);
      return;
    }
    if (take_thread(text)) return;
    if (begins_backtrace(text) && (form_ == Form::none || innermost_)) {
      end_thread();
      form_ = Form::gdb;  // of `bt` alone
    }
    if (form_ == Form::none) return;
    if (text.empty()) {
      end_thread();
    } else if (creates_group_ && group_ranks_.empty() && text.starts_with("ranks: [")) {
      group_ranks_ = text.substr(std::string_view("ranks: ").size());  // a local variable
    } else if (const auto frame = frame_of(text)) {
      creates_group_ |= creates_group(frame->words);
      if (const std::string_view call = gloo_collective(frame->words);
          form_ == Form::gdb && !call.empty() && !calls_.contains(call))
        calls_.emplace(call);
      const bool newest_last = form_ == Form::traceback;
      if (!innermost_ || newest_last) {
        innermost_ = frame->words;
        first_ = number_;
      }
      if ((!users_ || newest_last) && !frame->library) users_ = frame->words;
    }
  }

  // "=== Rank 3: host:port ===", "<h2>Rank 3: host:port</h2>"
  bool take_heading(std::string_view text) {
    for (const std::string_view opening : {"=== Rank ", "<h2>Rank ", "<h3>Rank "}) {
      if (!text.starts_with(opening)) continue;
      end_process();
      const auto rank = number_after(text, opening);
      rank_.reset();
      if (rank && is_possible_rank(*rank, kMaxWorldSize)) {
        rank_ = Rank(static_cast<std::int32_t>(*rank));
      }
      return true;
    }
    return false;
  }

  bool take_thread(std::string_view text) {
    if (is_thread_of_traceback(text)) {
      end_thread();
      form_ = Form::traceback;
      main_ = contains_text(text, "MainThread");
      return true;
    }
    if (!text.starts_with("Current thread 0x") && !text.starts_with("Thread ")) return false;
    Form form = Form::none;
    bool main = false;
    if (contains_text(text, "(most recent call first)")) {
      form = Form::faulthandler;
    } else if (contains_text(text, "(LWP ")) {
      form = Form::gdb;
      main = text.starts_with("Thread 1 ");
      if (main) gdb_pid_ = number_after(text, "(LWP ").value_or(kNone);
    } else if (contains_text(text, "(idle") || contains_text(text, "(active")) {
      form = Form::py_spy;
      main = contains_text(text, "\"MainThread\"");
    } else {
      return false;
    }
    end_thread();
    form_ = form;
    main_ = main;
    return true;
  }

  std::optional<Frame> frame_of(std::string_view text) const {
    switch (form_) {
      case Form::py_spy: {  // "wait (threading.py:320)", "0x7f01 (libc.so.6)"
        const std::size_t open = text.rfind(" (");
        if (open == kNpos || !text.ends_with(')')) return std::nullopt;
        const std::string_view file = text.substr(open + 2, text.size() - open - 3);
        return Frame{std::string(text), of_a_library(file) || !contains_text(file, ":")};
      }
      case Form::traceback:
      case Form::faulthandler: {  // File "train.py", line 12 in train
        constexpr std::string_view kFile = "File \"";
        if (!text.starts_with(kFile)) return std::nullopt;
        const std::size_t close = text.find("\", line ");
        if (close == kNpos) return std::nullopt;
        const std::string_view file = text.substr(kFile.size(), close - kFile.size());
        const std::string_view rest = text.substr(close + 8);
        const std::size_t in = rest.find(" in ");
        const std::string_view line = rest.substr(0, rest.find_first_of(", "));
        const std::string_view function = in == kNpos ? "" : rest.substr(in + 4);
        return Frame{fmt::format("{} ({}:{})", function, file, line), of_a_library(file)};
      }
      case Form::gdb: {  // "#12 0x00007f01 in ncclGroupEnd () from /lib/libnccl.so.2"
        if (!text.starts_with('#')) return std::nullopt;
        std::string_view function = text.substr(std::min(text.find(' '), text.size()));
        function = trimmed(function);
        if (const std::size_t in = function.find(" in ");
            function.starts_with("0x") && in != kNpos) {
          function = function.substr(in + 4);
        }
        if (function.empty()) return std::nullopt;
        return Frame{without_values(function).substr(0, 200), only_waits(function)};
      }
      case Form::none:
        break;
    }
    return std::nullopt;
  }

  // The main thread counts. If none is known to be it: the last of faulthandler's (which lists the
  // newest first), the first of the others'.
  void end_thread() {
    if (form_ != Form::none && innermost_) {
      const bool better =
          main_ || (!chosen_main_ && (chosen_.empty() || form_ == Form::faulthandler));
      if (better) {
        const bool gdb = form_ == Form::gdb;
        chosen_ = (gdb && users_ ? *users_ : *innermost_);
        if (creates_group_) {
          chosen_ = "the creation of a process group";
          if (!group_ranks_.empty()) chosen_ += fmt::format(" of ranks {}", group_ranks_);
        }
        if (!gdb && users_ && *users_ != *innermost_)
          chosen_ += fmt::format(", called from {}", *users_);
        chosen_creates_group_ = creates_group_;
        chosen_line_ = first_;
        chosen_main_ = main_;
      }
    }
    form_ = Form::none;
    innermost_.reset();
    users_.reset();
    creates_group_ = false;
    group_ranks_.clear();
  }

  void end_process() {
    end_thread();
    if (!chosen_.empty()) {
      if (calls_.size() == 1) chosen_ += fmt::format(", and another thread in {}", *calls_.begin());
      const std::int64_t pid = pid_ != kNone ? pid_ : gdb_pid_;
      out_.add({.kind = RankNote::Kind::stack,
                .rank = rank_.value_or(Rank(kNone)),
                .pid = pid > 0 ? pid : kNone,
                .text = fmt::format("its process was in {}", chosen_),
                .location = {file_.name, chosen_line_},
                .host = host_,
                .says = RankNote::Says::where_it_was,
                .content = chosen_,
                .creates_group = chosen_creates_group_});
    }
    chosen_.clear();
    calls_.clear();
    chosen_main_ = chosen_creates_group_ = false;
    pid_ = gdb_pid_ = kNone;
  }

  const TraceFile& file_;
  FileEvidence& out_;
  std::optional<Rank> rank_;
  std::string host_;  // by the label
  std::int64_t pid_ = kNone, gdb_pid_ = kNone;
  Form form_ = Form::none;
  bool main_ = false, chosen_main_ = false;
  bool creates_group_ = false, chosen_creates_group_ = false;
  std::string group_ranks_;  // of the group that is being created: "[0, 1]"
  std::optional<std::string> innermost_, users_;
  std::string chosen_;
  std::set<std::string, std::less<>> calls_;  // the collectives of Gloo's in which its threads are
  int number_ = 0, first_ = 0, chosen_line_ = 0;
};

// A heading "Thread 12 …" of py-spy, gdb or faulthandler.
bool is_thread(std::string_view text) {
  const std::string_view words = text.substr(text.find(' ') + 1);
  const std::size_t number = words.find_first_not_of("0123456789abcdefABCDEFx");
  if (number == 0 || number == kNpos) return false;
  const std::string_view rest = words.substr(number, 160);
  return rest.starts_with(" (idle") || rest.starts_with(" (active") ||
         contains_text(rest, "(LWP ") || contains_text(rest, "(most recent call first)");
}

// Where in the line a heading begins, if one does.
std::optional<std::size_t> heading_in(std::string_view line) {
  if (const std::size_t at = line.find("Current thread 0x"); at != kNpos) return at;
  if (const std::size_t at = line.find("Thread "); at != kNpos && is_thread(line.substr(at)))
    return at;
  if (const std::size_t at = line.find("#0  0x"); at != kNpos) return at;
  const std::size_t at = line.find("Process ");
  const auto number = at == kNpos ? std::nullopt : number_after(line.substr(at), "Process ");
  return number && contains_text(line.substr(at), ": ") ? std::optional(at) : std::nullopt;
}

class StacksReader {
 public:
  explicit StacksReader(const TraceFile& file) : file_(file) {}

  FileEvidence read() {
    if (file_.bytes.starts_with('[')) {
      for (const std::string& line : lines_of_json(file_.bytes))
        output_of("").take(trimmed(line), 0);
    }
    if (outputs_.empty()) {
      LogLines lines(file_.bytes);
      std::string buffer;
      while (const auto line = lines.next()) {
        std::string_view text = plain_text(*line, buffer);
        learn(text);
        const std::string_view label = labels_.of(text);
        text = after_timestamp(trimmed(text.substr(label.size())));
        output_of(label).take(trimmed(text), lines.number());
      }
    }
    for (auto& [label, output] : outputs_) output.end();
    return std::move(out_);
  }

 private:
  // What stands before a heading, except for its indentation.
  void learn(std::string_view text) {
    const std::optional<std::size_t> heading = heading_in(text);
    if (!heading) return;
    const std::string_view label = trimmed(text.substr(0, *heading));
    constexpr std::string_view kEnds = ":]>|)";
    if (!label.empty() && kEnds.find(label.back()) != kNpos)
      labels_.add(text.substr(0, text.find(label) + label.size()));
  }

  OneOutput& output_of(std::string_view label) {
    const auto known = outputs_.find(label);
    if (known != outputs_.end()) return known->second;
    std::optional<Rank> rank = file_.rank;
    std::string host;
    if (!rank) rank = rank_in_prefix(label);
    const std::string line = fmt::format("{} x", label);
    for (const LabelForm form : {LabelForm::none, LabelForm::rank_in_brackets,
                                 LabelForm::host_and_bar, LabelForm::host_and_colon}) {
      const auto parsed = rank ? std::nullopt : parse_label(line, form);
      if (!parsed) continue;
      if (parsed->host.empty()) rank = parsed->rank;
      host = parsed->host;
      break;
    }
    return outputs_.try_emplace(std::string(label), file_, out_, rank, std::move(host))
        .first->second;
  }

  const TraceFile& file_;
  FileEvidence out_;
  TracebackLabels labels_;
  std::map<std::string, OneOutput, std::less<>> outputs_;  // by label
};

FileEvidence read_stacks(const TraceFile& file) { return StacksReader(file).read(); }

// Whether one of the text's lines is the heading of a thread as py-spy and gdb write it, and frames
// follow.
bool has_threads(std::string_view text) {
  constexpr std::string_view kThread = "Thread ";
  const std::size_t last_of_gdb = text.rfind("#0 ");
  const std::size_t last_of_py_spy = text.rfind(':');
  for (std::size_t at = text.find(kThread); at != kNpos; at = text.find(kThread, at + 1)) {
    constexpr std::size_t kLongest = 256;
    std::string_view line = text.substr(at, kLongest);
    line = line.substr(0, line.find('\n'));
    if (!is_thread(line) || contains_text(line, "(most recent call first)")) continue;
    const std::size_t last = contains_text(line, "(LWP ") ? last_of_gdb : last_of_py_spy;
    if (last != kNpos && last > at + line.size()) return true;
  }
  return false;
}

bool is_stacks(std::string_view bytes, std::string_view /*name*/) {
  constexpr std::size_t kLooked = std::size_t{16} << 10U;
  const std::string_view head = bytes.substr(0, kLooked);
  // A log may hold faulthandler's lines, too: a file of stacks begins with them.
  const bool faulthandler = contains_text(head.substr(0, 512), "(most recent call first)") &&
                            contains_text(head, "File \"") && !contains_text(head, "Traceback") &&
                            !contains_text(head, "Fatal Python error");
  const bool json = head.starts_with('[') && contains_text(head, "\"owns_gil\"") &&
                    contains_text(head, "\"frames\"");
  const std::size_t first_end = head.find('\n');
  const std::string_view second = first_end == kNpos ? "" : head.substr(first_end + 1);
  const bool traceback = head.starts_with(kPid) &&
                         is_thread_of_traceback(trimmed(second.substr(0, second.find('\n')))) &&
                         contains_text(head, "File \"");
  if (faulthandler || json || traceback) return true;
  if (contains_text(head, "#0  0x") && contains_text(head, "#1  0x")) return true;
  // A job's output may have them at its end.
  const LogSample sample = sample_of(bytes);
  return sample.head.find('\0') == kNpos && sample.any(has_threads);
}

}  // namespace

EvidenceSource stack_source() {
  return {.name = "stack",
          .summary = "stacks: py-spy, gdb, faulthandler, torch_npu, a debug server",
          .recognises = is_stacks,
          .read = read_stacks};
}

}  // namespace lockstep::trace
