#include "runtime/record/preload/python_program.h"

#include <dlfcn.h>

#include <charconv>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ATen/Version.h>

namespace lockstep::runtime {

// Functions of Python's C API. Its objects, frames and threads are opaque here: void*.
struct PythonApi {
  int (*is_initialized)() = nullptr;
  int (*is_finalizing)() = nullptr;
  int (*lock)() = nullptr;
  void (*unlock)(int) = nullptr;
  void* (*this_thread)() = nullptr;
  void* (*current_frame)() = nullptr;  // borrowed
  void* (*caller)(void*) = nullptr;
  void* (*code_of)(void*) = nullptr;
  int (*line_of)(void*) = nullptr;
  void* (*attribute)(void*, const char*) = nullptr;
  const char* (*utf8)(void*, long*) = nullptr;
  void* (*text_of)(void*) = nullptr;
  long (*number)(void*) = nullptr;
  void (*keep)(void*) = nullptr;
  void (*give_back)(void*) = nullptr;
  void (*clear_error)() = nullptr;
  void (*print_error)(void*) = nullptr;
  void* (*of_sys)(const char*) = nullptr;  // borrowed
  int (*set_in_sys)(const char*, void*) = nullptr;
  void* (*make_function)(void*, void*, void*) = nullptr;
  void* (*call)(void*, void*, void*) = nullptr;
  void* (*module)(const char*) = nullptr;
  void* (*pack)(long, ...) = nullptr;  // a tuple of objects, which it keeps
  void* (*release)() = nullptr;        // the GIL, until take_again
  void (*take_again)(void*) = nullptr;
  void* (*item)(void*, long) = nullptr;  // of a tuple; borrowed
  void* (*new_text)(const char*) = nullptr;
  void* (*new_dictionary)() = nullptr;
  int (*set_item)(void*, const char*, void*) = nullptr;
  int (*call_later)(int (*)(void*), void*) = nullptr;  // on the main thread, with the GIL
  void* none = nullptr;
};

namespace {

// Python's PyMethodDef, which is part of its stable ABI.
struct MethodDefinition {
  const char* name;
  void* (*function)(void* self, void* arguments);
  int flags;
  const char* doc;
};
constexpr int kPositionalArguments = 1;     // METH_VARARGS
constexpr std::size_t kLongestText = 2000;  // of an exception's message
constexpr int kMaxFrames = 200;             // read; recursive programs have thousands

template <typename Pointer>
bool find(Pointer& out, const char* name) {
  out = reinterpret_cast<Pointer>(::dlsym(RTLD_DEFAULT, name));
  return out != nullptr;
}

bool find_all(PythonApi& api) {
  return (find(api.is_finalizing, "Py_IsFinalizing") ||
          find(api.is_finalizing, "_Py_IsFinalizing")) &&
         find(api.is_initialized, "Py_IsInitialized") && find(api.lock, "PyGILState_Ensure") &&
         find(api.unlock, "PyGILState_Release") &&
         find(api.this_thread, "PyGILState_GetThisThreadState") &&
         find(api.current_frame, "PyEval_GetFrame") && find(api.caller, "PyFrame_GetBack") &&
         find(api.code_of, "PyFrame_GetCode") && find(api.line_of, "PyFrame_GetLineNumber") &&
         find(api.attribute, "PyObject_GetAttrString") &&
         find(api.utf8, "PyUnicode_AsUTF8AndSize") && find(api.text_of, "PyObject_Str") &&
         find(api.number, "PyLong_AsLong") && find(api.keep, "Py_IncRef") &&
         find(api.give_back, "Py_DecRef") && find(api.clear_error, "PyErr_Clear") &&
         find(api.print_error, "PyErr_WriteUnraisable") && find(api.of_sys, "PySys_GetObject") &&
         find(api.set_in_sys, "PySys_SetObject") && find(api.make_function, "PyCFunction_NewEx") &&
         find(api.call, "PyObject_Call") && find(api.module, "PyImport_ImportModule") &&
         find(api.pack, "PyTuple_Pack") && find(api.release, "PyEval_SaveThread") &&
         find(api.take_again, "PyEval_RestoreThread") && find(api.item, "PyTuple_GetItem") &&
         find(api.new_text, "PyUnicode_FromString") && find(api.new_dictionary, "PyDict_New") &&
         find(api.set_item, "PyDict_SetItemString") && find(api.call_later, "Py_AddPendingCall") &&
         find(api.none, "_Py_NoneStruct");
}

// Holds the GIL. May be nested.
class PythonLock {
 public:
  explicit PythonLock(const PythonApi& api) : api_(api), state_(api.lock()) {}
  ~PythonLock() { api_.unlock(state_); }
  PythonLock(const PythonLock&) = delete;
  PythonLock& operator=(const PythonLock&) = delete;

 private:
  const PythonApi& api_;
  int state_;
};

// A reference that is given back. Null: there was none, and Python's error is cleared.
class Owned {
 public:
  Owned(const PythonApi& api, void* object) : api_(&api), object_(object) {
    if (object_ == nullptr) api.clear_error();
  }
  ~Owned() {
    if (object_ != nullptr) api_->give_back(object_);
  }
  Owned(Owned&& from) noexcept : api_(from.api_), object_(std::exchange(from.object_, nullptr)) {}
  Owned& operator=(Owned&& from) noexcept {
    std::swap(object_, from.object_);
    return *this;
  }
  void* get() const { return object_; }

 private:
  const PythonApi* api_;
  void* object_;
};

// A Python string; empty if the object is not one.
std::string text(const PythonApi& api, const Owned& object) {
  if (object.get() == nullptr) return {};
  long bytes = 0;
  const char* const data = api.utf8(object.get(), &bytes);
  if (data == nullptr) {
    api.clear_error();
    return {};
  }
  return {data, static_cast<std::size_t>(bytes)};
}

std::string file_of(const PythonApi& api, void* code) {
  return text(api, {api, api.attribute(code, "co_filename")});
}

// Whether this code of torch makes calls for Join: Join itself, and DDP's question under Join, in
// every step and without waiting for the answer, whether all ranks synchronise in backward.
bool is_for_join(const PythonApi& api, const std::string& file, void* code) {
  if (file.ends_with("/algorithms/join.py")) return true;
  return file.ends_with("/nn/parallel/distributed.py") &&
         text(api, {api, api.attribute(code, "co_name")}) ==
             "_check_global_requires_backward_grad_sync";
}

bool is_functional(const std::string& file) {
  return file.ends_with("/distributed/_functional_collectives.py");
}

// …/torch/, from …/torch/lib/libtorch_cpu.so.
std::string folder_of_torch() {
  Dl_info library{};
  const auto* const inside = reinterpret_cast<const void*>(&at::show_config);
  if (::dladdr(inside, &library) == 0 || library.dli_fname == nullptr) return {};
  return std::filesystem::path(library.dli_fname).parent_path().parent_path().string() + "/";
}

}  // namespace

PythonProgram* PythonProgram::of_process() {
  static const PythonApi* const api = []() -> const PythonApi* {
    static PythonApi found;
    return find_all(found) ? &found : nullptr;
  }();
  if (api == nullptr || api->is_initialized() == 0 || api->is_finalizing() != 0) return nullptr;
  static PythonProgram* const program = new PythonProgram(*api);  // hooks refer to it until the end
  return program;
}

PythonProgram::PythonProgram(const PythonApi& api) : api_(api), torch_folder_(folder_of_torch()) {
  std::error_code failed;
  folder_ = std::filesystem::current_path(failed).string() + "/";
}

PythonProgram::Origin PythonProgram::origin_of(const std::string& file) const {
  if (file.empty() || file.front() == '<') return Origin::none;  // from exec(), or a frozen module
  // Our own, wherever it lies: backward and step go through it where values are recorded.
  if (file.ends_with("/lockstep_watch.py") || file.ends_with("/lockstep_watch_all.py"))
    return Origin::none;
  if (!torch_folder_.empty() && file.starts_with(torch_folder_)) return Origin::torch;
  if (file.find("/site-packages/torch/") != std::string::npos) return Origin::torch;
  for (const char* const installed : {"/site-packages/", "/dist-packages/"})
    if (file.find(installed) != std::string::npos) return Origin::package;
  // The standard library's; a virtual environment holds none of it.
  if (file.find("/lib/python3") != std::string::npos) return Origin::none;
  return Origin::program;
}

std::string PythonProgram::location(const std::string& file, long line) const {
  std::string shown = file.starts_with(folder_) ? file.substr(folder_.size())
                                                : std::filesystem::path(file).filename().string();
  constexpr std::string_view kInstalled = "/site-packages/";
  const std::size_t installed = file.rfind(kInstalled);
  if (origin_of(file) == Origin::torch && installed != std::string::npos)
    shown = file.substr(installed + kInstalled.size());
  return shown + ":" + std::to_string(line);
}

PythonProgram::CallSite PythonProgram::call_site() const {
  CallSite out;
  // A thread that Python does not know has no frames.
  if (api_.is_finalizing() != 0 || api_.this_thread() == nullptr) return out;
  const PythonLock lock(api_);
  void* const innermost = api_.current_frame();
  if (innermost == nullptr) return out;
  api_.keep(innermost);
  Owned frame(api_, innermost);
  Origin origin = Origin::torch;
  std::string of_torch;  // the outermost of its frames
  int line_of_torch = 0;
  for (int i = 0; i < kMaxFrames && frame.get() != nullptr; ++i) {
    const Owned code(api_, api_.code_of(frame.get()));
    std::string file = code.get() == nullptr ? std::string() : file_of(api_, code.get());
    const Origin here = origin_of(file);
    out.in_join |= here == Origin::torch && is_for_join(api_, file, code.get());
    out.functional |= here == Origin::torch && is_functional(file);
    if (here > origin) {
      out.line = location(file, api_.line_of(frame.get()));
      origin = here;
    }
    if (origin == Origin::program) break;
    if (origin == Origin::torch && here == Origin::torch) {
      of_torch = std::move(file);
      line_of_torch = api_.line_of(frame.get());
    }
    frame = Owned(api_, api_.caller(frame.get()));
  }
  // A thread that torch started, such as that of an asynchronous checkpoint.
  if (out.line.empty() && !of_torch.empty()) out.line = location(of_torch, line_of_torch);
  return out;
}

bool PythonProgram::import(const char* module) const {
  if (api_.is_finalizing() != 0 || api_.this_thread() == nullptr) return false;
  const PythonLock lock(api_);
  void* const imported = api_.module(module);
  if (imported == nullptr) {
    api_.print_error(nullptr);  // not by sys.excepthook, which reports what ends the program
    return false;
  }
  api_.give_back(imported);
  return true;
}

std::string PythonProgram::line_of_traceback(void* traceback) const {
  std::string best;
  Origin origin = Origin::torch;
  api_.keep(traceback);
  Owned entry(api_, traceback);
  // From the outermost frame to the innermost. Among lines of equal origin the last one counts.
  while (entry.get() != nullptr && entry.get() != api_.none) {
    const Owned frame(api_, api_.attribute(entry.get(), "tb_frame"));
    const Owned line(api_, api_.attribute(entry.get(), "tb_lineno"));
    if (frame.get() != nullptr && line.get() != nullptr) {
      const Owned code(api_, api_.code_of(frame.get()));
      const std::string file = code.get() == nullptr ? std::string() : file_of(api_, code.get());
      if (const Origin here = origin_of(file); here >= origin && here != Origin::torch) {
        best = location(file, api_.number(line.get()));
        origin = here;
      }
    }
    entry = Owned(api_, api_.attribute(entry.get(), "tb_next"));
  }
  return best;
}

namespace {

// Messages of several lines in one.
std::string in_one_line(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (!space) out += c;
    if (space && !out.empty() && out.back() != ' ') out += ' ';
  }
  if (out.ends_with(' ')) out.pop_back();
  return out;
}

// File and line of a frame of a traceback in text: `  File "a.py", line 7, in f`.
std::optional<std::pair<std::string, long>> frame_of(std::string_view text) {
  constexpr std::string_view kFile = "  File \"", kLine = "\", line ";
  const std::size_t end = text.find(kLine);
  if (!text.starts_with(kFile) || end == std::string_view::npos) return std::nullopt;
  long line = 0;
  const std::string_view number = text.substr(end + kLine.size());
  std::from_chars(number.data(), number.data() + number.size(), line);
  return std::pair(std::string(text.substr(kFile.size(), end - kFile.size())), line);
}

// An exception that torch relays from another process or thread, as of a DataLoader's worker. Its
// message is "Caught OSError in DataLoader worker process 0.\nOriginal Traceback (most …".
struct RelayedException {
  std::string what;                                  // "OSError: truncated JPEG"
  std::string where;                                 // "in DataLoader worker process 0"
  std::vector<std::pair<std::string, long>> frames;  // file and line, the outermost first
};

// A message without the tracebacks of other exceptions in it, as torch.distributed.checkpoint and
// multiprocessing relay them: the exceptions stay, with the rank where there is one.
//
//   CheckpointException ranks:dict_keys([3])
//   Traceback (most recent call last): (RANK 3)       "CheckpointException ranks:dict_keys([3]);
//     File "/v/torch/…/utils.py", line 242, in …       rank 3: OSError: [Errno 28] No space left"
//   OSError: [Errno 28] No space left
std::string without_tracebacks(const std::string& message) {
  constexpr std::string_view kTraceback = "Traceback (most recent call last):", kRank = " (RANK ";
  if (message.find(kTraceback) == std::string::npos) return message;
  std::string out, line, whose;
  bool in_frames = false;
  std::istringstream lines(message);
  while (std::getline(lines, line)) {
    if (const std::size_t at = line.find(kTraceback); at != std::string::npos) {
      in_frames = true;
      const std::string rest = line.substr(at + kTraceback.size());
      whose = rest.starts_with(kRank)
                  ? "rank " + rest.substr(kRank.size(), rest.find(')') - kRank.size()) + ": "
                  : "";
      continue;
    }
    const bool is_frame = line.empty() || line.front() == ' ';
    if (in_frames && is_frame) continue;
    if (in_frames && !out.empty()) {
      while (out.ends_with('\n') || out.ends_with(' ')) out.pop_back();
      out += "; ";
    }
    out += (in_frames ? whose : "") + line + "\n";
    in_frames = false;
  }
  return out;
}

std::optional<RelayedException> relayed_exception(const std::string& message) {
  constexpr std::string_view kCaught = "Caught ", kOriginal = ".\nOriginal Traceback (most recent";
  const std::size_t end = message.find(kOriginal);
  const std::size_t type_ends = message.find(' ', kCaught.size());
  if (!message.starts_with(kCaught) || end == std::string::npos || type_ends > end)
    return std::nullopt;
  RelayedException out;
  out.where = message.substr(type_ends + 1, end - type_ends - 1);
  std::istringstream lines(message.substr(end + kOriginal.size()));
  std::string line;
  std::getline(lines, line);  // the rest of "(most recent call last):"
  while (std::getline(lines, line)) {
    if (auto frame = frame_of(line)) {
      out.frames.push_back(std::move(*frame));
      out.what.clear();
    } else if (!out.what.empty() || (!line.empty() && line.front() != ' ')) {
      out.what += line + "\n";
    }
  }
  if (out.what.empty()) return std::nullopt;
  out.what = in_one_line(out.what);
  return out;
}

}  // namespace

std::string PythonProgram::line_of_frames(
    const std::vector<std::pair<std::string, long>>& frames) const {
  std::string best;
  Origin origin = Origin::torch;
  for (const auto& [file, line] : frames) {
    const Origin here = origin_of(file);
    if (here < origin || here == Origin::torch) continue;
    best = location(file, line);
    origin = here;
  }
  return best;
}

std::string PythonProgram::words_of_exception(void* type, void* value, void* traceback) const {
  std::string what = text(api_, {api_, api_.attribute(type, "__name__")});
  const std::string message = text(api_, {api_, api_.text_of(value)});
  if (const auto of_worker = relayed_exception(message)) {
    what = of_worker->what.substr(0, kLongestText);
    if (const std::string there = line_of_frames(of_worker->frames); !there.empty())
      what += " (" + there + ")";
    what += ", " + of_worker->where;
  } else if (const std::string one_line = in_one_line(without_tracebacks(message));
             !one_line.empty()) {
    what += ": " + one_line.substr(0, kLongestText);
  }
  const std::string line =
      traceback == nullptr || traceback == api_.none ? std::string() : line_of_traceback(traceback);
  if (!line.empty()) what += " (" + line + ")";
  return what;
}

namespace {

// Runs Python's text, in which `name` is `value`. Without an effect where something fails.
void run(const PythonApi& api, const char* text, const char* name, void* value) {
  const Owned module(api, api.module("builtins"));
  const Owned exec(api, api.attribute(module.get(), "exec"));
  const Owned source(api, api.new_text(text));
  const Owned globals(api, api.new_dictionary());
  if (exec.get() != nullptr && source.get() != nullptr && globals.get() != nullptr &&
      value != nullptr && api.set_item(globals.get(), name, value) == 0) {
    const Owned arguments(api, api.pack(2, source.get(), globals.get()));
    const Owned done(api, api.call(exec.get(), arguments.get(), nullptr));
  }
  api.clear_error();
}

// Processes that Python's multiprocessing starts do not come to sys.excepthook: what the program
// raises there is caught and printed. torch.multiprocessing.spawn makes sys.exit(1) of it.
constexpr const char* kReportOfProcesses = R"py(
import multiprocessing.process

def reporting(run):
    def run_and_report(self):
        try:
            run(self)
        except SystemExit as end:
            if end.code and isinstance(end.__context__, Exception):
                report(type(end.__context__), end.__context__, end.__context__.__traceback__)
            raise
        except BaseException as error:
            report(type(error), error, error.__traceback__)
            raise
    return run_and_report

multiprocessing.process.BaseProcess.run = reporting(multiprocessing.process.BaseProcess.run)
)py";

}  // namespace

// (type, value, traceback)
void PythonProgram::report(void* arguments) const {
  const PythonProgram& program = *this;
  const PythonApi& api = program.api_;
  void* const type = api.item(arguments, 0);
  void* const value = api.item(arguments, 1);
  void* const traceback = api.item(arguments, 2);
  api.clear_error();
  if (type != nullptr && value != nullptr) {
    std::string what = program.words_of_exception(type, value, traceback);
    api.keep(value);
    Owned first(api, value);
    constexpr int kMaxCauses = 20;  // a chain may be a ring
    for (int i = 0; i < kMaxCauses; ++i) {
      Owned cause(api, api.attribute(first.get(), "__cause__"));
      if (cause.get() == nullptr || cause.get() == api.none) break;
      first = std::move(cause);
    }
    if (first.get() != value) {
      const Owned of(api, api.attribute(first.get(), "__class__"));
      const Owned where(api, api.attribute(first.get(), "__traceback__"));
      if (of.get() != nullptr)
        what += "; caused by " + program.words_of_exception(of.get(), first.get(), where.get());
    }
    program.report_(what);
  }
}

// sys.excepthook
void* PythonProgram::uncaught(void* /*self*/, void* arguments) {
  const PythonProgram& program = *of_process();
  program.report(arguments);
  return program.api_.call(program.previous_hook_, arguments, nullptr);
}

void* PythonProgram::raised_in_process(void* /*self*/, void* arguments) {
  const PythonProgram& program = *of_process();
  program.report(arguments);
  program.api_.keep(program.api_.none);
  return program.api_.none;
}

int PythonProgram::follow_processes(void* program) {
  const PythonApi& api = static_cast<PythonProgram*>(program)->api_;
  static MethodDefinition definition = {"report", &PythonProgram::raised_in_process,
                                        kPositionalArguments, "Reports to Lockstep's recorder."};
  const Owned function(api, api.make_function(&definition, nullptr, nullptr));
  run(api, kReportOfProcesses, "report", function.get());
  return 0;
}

void PythonProgram::on_uncaught(std::function<void(const std::string&)> report) {
  if (report_ || api_.is_finalizing() != 0 || api_.this_thread() == nullptr) return;
  const PythonLock lock(api_);
  void* const before = api_.of_sys("excepthook");
  static MethodDefinition definition = {
      "excepthook", &PythonProgram::uncaught, kPositionalArguments,
      "Reports to Lockstep's recorder, then calls the previous hook."};
  const Owned hook(api_, api_.make_function(&definition, nullptr, nullptr));
  if (before == nullptr || hook.get() == nullptr) return;
  api_.keep(before);
  previous_hook_ = before;
  report_ = std::move(report);
  if (api_.set_in_sys("excepthook", hook.get()) != 0) api_.clear_error();
  // Python's own code may let other threads run, which torch's locks, held where it is imported,
  // do not allow: so later.
  (void)api_.call_later(&PythonProgram::follow_processes, this);
}

namespace {

// In Python, since it asks for much that the C API gives only piece by piece. `path` is given.
constexpr const char* kWriteStacks = R"py(
import os, sys, _thread

def shown(file):
    at = file.rfind("/site-packages/torch/")
    if at >= 0:
        return file[at + len("/site-packages/"):]
    here = os.getcwd() + "/"
    return file[len(here):] if file.startswith(here) else file

def group_of(frame):
    code = frame.f_code
    if "new_group" in code.co_name and code.co_filename.endswith("/distributed_c10d.py"):
        ranks = frame.f_locals.get("ranks")
        if isinstance(ranks, (list, tuple)) and ranks:
            return ["        ranks: [%s]" % ", ".join(str(int(rank)) for rank in ranks)]
    return []

threading = sys.modules.get("threading")
main = threading.main_thread().ident if threading else None
lines = ["Process %d: %s" % (os.getpid(), " ".join(sys.argv)), ""]
for thread, frame in sorted(sys._current_frames().items(), key=lambda item: item[0] != main):
    if thread == _thread.get_ident():
        continue
    lines.append("Thread %d (idle): \"%s\"" % (thread, "MainThread" if thread == main else "Thread"))
    depth = 0
    while frame is not None and depth < 200:
        lines.append("    %s (%s:%s)" % (frame.f_code.co_name, shown(frame.f_code.co_filename), frame.f_lineno))
        lines.extend(group_of(frame))
        frame = frame.f_back
        depth += 1
    lines.append("")
with open(path + ".new", "w") as out:
    out.write("\n".join(lines))
os.replace(path + ".new", path)
)py";

}  // namespace

void PythonProgram::write_stacks(const char* path) const {
  if (api_.is_finalizing() != 0) return;
  const int state = api_.lock();  // Python may end the thread here
  {
    const Owned file(api_, api_.new_text(path));
    run(api_, kWriteStacks, "path", file.get());
  }
  api_.unlock(state);
}

void* PythonProgram::ends(void* /*self*/, void* /*arguments*/) {
  const PythonProgram& program = *of_process();
  void* const thread = program.api_.release();
  program.act_at_end_();
  program.api_.take_again(thread);
  program.api_.keep(program.api_.none);
  return program.api_.none;
}

void PythonProgram::at_end(std::function<void()> act) {
  if (act_at_end_ || api_.is_finalizing() != 0 || api_.this_thread() == nullptr) return;
  const PythonLock lock(api_);
  static MethodDefinition definition = {"at_end", &PythonProgram::ends, kPositionalArguments,
                                        "Lets Lockstep's recorder wait for the transport."};
  const Owned hook(api_, api_.make_function(&definition, nullptr, nullptr));
  const Owned module(api_, api_.module("atexit"));
  if (hook.get() == nullptr || module.get() == nullptr) return;
  const Owned add(api_, api_.attribute(module.get(), "register"));
  const Owned arguments(api_, api_.pack(1, hook.get()));
  if (add.get() == nullptr || arguments.get() == nullptr) return;
  act_at_end_ = std::move(act);
  const Owned added(api_, api_.call(add.get(), arguments.get(), nullptr));
}

}  // namespace lockstep::runtime
