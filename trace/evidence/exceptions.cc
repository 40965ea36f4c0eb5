#include "trace/evidence/exceptions.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "trace/evidence/failure_messages.h"
#include "trace/evidence/frames.h"
#include "trace/evidence/line_labels.h"
#include "trace/formats/log_lines.h"
#include "trace/trace_builder.h"

namespace lockstep::trace {

namespace {

constexpr std::string_view kOfRay = "[Rank ";
constexpr std::string_view kBoxCorner = "\xE2\x95\xAD";  // of rich: ╭
constexpr std::string_view kBoxSide = "\xE2\x94\x82";    // │
constexpr std::string_view kBoxEnd = "\xE2\x95\xB0";     // ╰

// "torch.OutOfMemoryError: CUDA out of memory", "KeyError: 'x'", "AssertionError".
bool looks_like_exception(std::string_view line) {
  const std::size_t end = line.find(':');
  const std::string_view type = line.substr(0, end);
  constexpr std::size_t kLongestType = 128;
  if (type.empty() || type.size() > kLongestType) return false;
  if (end != kNpos && end + 1 < line.size() && line[end + 1] != ' ') return false;
  return (is_letter(type.front()) || type.front() == '_') &&
         std::all_of(type.begin(), type.end(),
                     [](char c) { return is_letter(c) || c == '_' || c == '.' || is_digit(c); });
}

bool is_indented(std::string_view line) { return line.starts_with(' ') || line.starts_with('\t'); }

}  // namespace

RankNote::Kind kind_of_exception(std::string_view text) {
  if (contains_text(text, "ProcessExitedException")) {
    if (contains_text(text, "signal SIGKILL")) return RankNote::Kind::killed;
    const bool crashed = contains_text(text, "signal SIGSEGV") ||
                         contains_text(text, "signal SIGBUS") ||
                         contains_text(text, "signal SIGILL");
    return crashed ? RankNote::Kind::crashed : RankNote::Kind::ended;
  }
  if (mentions_a_peer(text)) return RankNote::Kind::peer_lost;
  return mentions_memory(text) ? RankNote::Kind::out_of_memory : RankNote::Kind::exception;
}

bool is_written_at_end(std::string_view text) {
  if (is_indented(text)) return true;  // in a message, mostly a list
  text = trimmed(text);
  if (text.empty() || text == "]") return true;
  // "[W" to "[I" and "E0" to "W1" begin log lines of C++ and Python: "[W709 …", "E0709 …".
  static constexpr std::array<std::string_view, 37> kBegins = {
      "CUDA kernel errors",
      "making sure all `forward`",  // of DistributedDataParallel, about unused parameters
      "If you already have done the above",
      "Operation: `",  // of Accelerate
      "Input shapes:",
      "EI00",  // of HCCL
      "[PID: ",
      "there are(is) ",
      "Possible Cause:",
      "Solution:",
      "EZ99",
      "HIP kernel errors",
      "For debugging consider passing",
      "Compile with `TORCH_USE_",
      "Search for `cuda",
      "nccl",
      "Parameter indices which did not receive grad",
      "Parameters which did not receive grad",
      "Last error:",
      "[rank",
      "[W",
      "[E",
      "[F",
      "[I",
      "frame #",
      "Traceback",
      "terminate ",
      "what():",
      "Exception",
      "The above",
      "During handling",
      "WARNING:torch",
      "ERROR:torch",
      "E0",
      "W0",
      "E1",
      "W1"};
  if (std::any_of(kBegins.begin(), kBegins.end(), [&](auto b) { return text.starts_with(b); })) {
    return true;
  }
  return contains_any(text,
                      {"NCCL ", "torch.distributed", "resource_tracker", "leaked ", "warnings.warn",
                       "destroy_process_group", "elastic", "Aborted", "core dumped"});
}

namespace {

// Whether a type of a library is cut off in its name, as where a copy ended in the line:
// "torch.distributed.DistStoreEr". Names without a dot may be a program's own.
bool is_cut_type(std::string_view line) {
  static constexpr std::array<std::string_view, 6> kEnds = {"Error",     "Exception", "Warning",
                                                            "Interrupt", "Exit",      "Timeout"};
  const bool of_torch = line.starts_with("torch.") || line.starts_with("ray.exceptions.");
  return of_torch && line.find(':') == kNpos &&
         std::none_of(kEnds.begin(), kEnds.end(), [&](auto end) { return line.ends_with(end); });
}

// "accelerate/state.py" of "/v/lib/python3.11/site-packages/accelerate/state.py"; empty: it is in
// no such folder, or torch's.
std::string_view installed_path(std::string_view file) {
  for (const std::string_view folder : {"site-packages/", "dist-packages/"}) {
    const std::size_t at = file.rfind(folder);
    if (at == kNpos) continue;
    const std::string_view path = file.substr(at + folder.size());
    return path.starts_with("torch/") ? std::string_view() : path;
  }
  return {};
}

}  // namespace

// `  File "/app/model.py", line 17, in forward`
void ExceptionReader::take_frame(std::string_view line) {
  constexpr std::string_view kFile = "File \"", kLine = "\", line ";
  constexpr std::size_t kLongestPath = 256;
  line = trimmed(line);
  const std::size_t end = line.find(kLine);
  if (!line.starts_with(kFile) || end == kNpos || end > kLongestPath) return;
  const auto number = number_after(line.substr(end), kLine);
  if (!number) return;
  const std::string_view file = line.substr(kFile.size(), end - kFile.size());
  at_ = fmt::format("{}:{}", file, *number);
  constexpr std::string_view kIn = ", in ";
  const std::size_t in = line.find(kIn, end);
  function_ = in == kNpos ? "" : line.substr(in + kIn.size()).substr(0, kLongestPath);
  if (!of_a_library(at_)) {
    users_at_ = at_;
    library_.clear();
  } else if (const std::string_view path = installed_path(file); !path.empty()) {
    library_ = fmt::format("{} ({}:{})", function_, path, *number);
  }
}

// See Taken::in, of the frames that were read.
std::string ExceptionReader::where_in() const {
  // The library's frame is the innermost itself where torch was not called.
  const bool is_innermost = library_.starts_with(fmt::format("{} (", function_));
  if (library_.empty() || is_innermost) return library_.empty() ? function_ : library_;
  return fmt::format("{}, called from {}", function_, library_);
}

ExceptionReader::Taken ExceptionReader::take(std::string_view line) {
  if (begins(line)) return {.part = true};
  if (in_terminate_ || contains_text(line, kTerminate)) return take_terminate(line);
  return in_traceback_ ? take_traceback(line) : Taken();
}

bool ExceptionReader::begins(std::string_view line) {
  constexpr std::string_view kOfRank = "last): (RANK ";
  if (line.starts_with(kOfRay) && contains_text(line, kSnippet)) {
    of_rank_ = rank_behind(line, kOfRay);
    return in_traceback_ = true;
  }
  if (line.starts_with(kTraceback)) {
    at_.clear();
    users_at_.clear();
    function_.clear();
    library_.clear();
    of_rank_ = rank_behind(line, kOfRank);
    return in_traceback_ = true;
  }
  // ╭──── Traceback (most recent call last) ────╮
  if (line.starts_with(kBoxCorner) && contains_text(line, kTraceback))
    return boxed_ = in_traceback_ = true;
  if (line.starts_with(kIgnored)) return ignored_ = true;
  if (line.starts_with(kInThread)) return in_thread_ = true;
  if (line.starts_with(kCauses) || line.starts_with(kHandled)) return chained_ = true;
  return false;
}

// "terminate called …", then a line with what().
ExceptionReader::Taken ExceptionReader::take_terminate(std::string_view line) {
  if (const std::size_t at = line.find(kTerminate); at != kNpos) {
    const std::string_view type = line.substr(at + kTerminate.size());
    in_terminate_ = true;
    terminated_by_ = type.substr(0, std::min(type.find('\''), RankNote::kLongest));
    return {.part = true};
  }
  in_terminate_ = false;
  constexpr std::string_view kWhat = "what():";
  const std::size_t at = line.find(kWhat);
  const std::string_view what = at == kNpos ? std::string_view() : line.substr(at + kWhat.size());
  return {.part = at != kNpos,
          .raised = fmt::format("{}: {}", terminated_by_, trimmed(what)),
          .aborts = true};
}

ExceptionReader::Taken ExceptionReader::take_traceback(std::string_view line) {
  // Frames are indented. The first line that is not is the exception.
  if (line.empty() || is_indented(line)) {
    take_frame(line);
    return {.part = true};
  }
  if (boxed_ && (line.starts_with(kBoxSide) || line.starts_with(kBoxEnd))) return {.part = true};
  if (contains_text(line, "RayTaskError(") && contains_text(line, "(pid=")) {
    of_task_ = line;
    return {.part = true};
  }
  in_traceback_ = boxed_ = false;
  const bool chained = std::exchange(chained_, false);
  if (!looks_like_exception(line) || is_cut_type(line)) return {};
  const bool thread = std::exchange(in_thread_, false);
  if (std::exchange(ignored_, false)) return {.part = true};
  if (line.starts_with("KeyboardInterrupt") || line.starts_with("SystemExit"))
    return {.part = true};
  return {.part = true,
          .raised = std::string(line),
          .in_thread = thread,
          .of_task = std::exchange(of_task_, {}),
          .of_rank = std::exchange(of_rank_, Rank(kNone)),
          .at = users_at_.empty() ? std::exchange(at_, {}) : users_at_,
          .at_users = !std::exchange(users_at_, {}).empty(),
          .in = where_in(),
          .chained = chained};
}

}  // namespace lockstep::trace
