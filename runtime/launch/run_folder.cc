#include "runtime/launch/run_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files/read_file.h"
#include "base/files/write_file.h"
#include "base/result.h"
#include "base/text.h"
#include "trace/formats/ring/ring_file.h"

namespace lockstep::runtime {

namespace {

namespace fs = std::filesystem;

std::string rank_file(const std::string& folder, int rank, const char* ending) {
  return fmt::format("{}/rank_{}{}", folder, rank, ending);
}

bool holds_traces(const fs::path& folder) {
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".ring") || name.find(".trace.jsonl") != std::string::npos) return true;
  }
  return false;
}

fs::path unused_name(const fs::path& folder) {
  std::error_code unknown;
  fs::path name = folder;
  for (int i = 2; fs::exists(name, unknown); ++i)
    name = fs::path(fmt::format("{}-{}", folder.string(), i));
  return name;
}

}  // namespace

std::string run_folder_name(const std::string& scenario_file, std::time_t now) {
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> time{};
  std::strftime(time.data(), time.size(), "%Y%m%dT%H%M%SZ", &utc);
  return fmt::format("{}-{}", fs::path(scenario_file).stem().string(), time.data());
}

Result<std::string> make_run_folder(const std::string& folder, const Scenario& scenario,
                                    bool may_rename) {
  const fs::path path = may_rename ? unused_name(folder) : fs::path(folder);
  if (holds_traces(path))
    return Error{"the folder holds the traces of an earlier run",
                 {path.string()},
                 "name another folder, or remove this one"};
  if (const Status made = make_folder(path.string()); !made) return made.error();
  std::error_code failed;
  // For people who look at the folder later. A scenario that is not a file cannot be copied, and
  // that is fine.
  fs::copy_file(scenario.file, path / "scenario.yaml", fs::copy_options::overwrite_existing,
                failed);
  return path.string();
}

std::string ring_file(const std::string& folder, int rank) {
  return rank_file(folder, rank, ".ring");
}
std::string log_file(const std::string& folder, int rank) {
  return rank_file(folder, rank, ".log");
}
std::string result_file(const std::string& folder, int rank) {
  return rank_file(folder, rank, ".result.json");
}
std::string stack_file(const std::string& folder, int rank) {
  return rank_file(folder, rank, ".stack");
}
std::string store_file(const std::string& folder) { return folder + "/store"; }

std::vector<std::string> last_lines(const std::string& file, std::size_t lines) {
  // A few lines of a log; its end is enough.
  constexpr std::size_t kMaxBytes = 4096;
  const Result<std::string> end = read_file_end(file, kMaxBytes);
  if (!end) return {};
  std::string_view text = *end;
  std::vector<std::string> out;
  while (!text.empty() && out.size() < lines) {
    if (text.back() == '\n') text.remove_suffix(1);
    const std::size_t before = text.rfind('\n');
    const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
    if (begin < text.size()) out.push_back(printable(text.substr(begin)));
    text = text.substr(0, begin);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::optional<Error> last_error(const std::string& log) {
  constexpr std::size_t kErrorLines = 20;  // longest error, in lines
  constexpr std::string_view kError = "error: ", kFix = "  fix: ";
  Error out;
  bool found = false;
  for (const std::string& line : last_lines(log, kErrorLines)) {
    // Lines of an error, as Error::str() writes them:
    //   job.yaml:3:1: error: unknown key "modle"
    //     fix: did you mean "model"?
    // Further lines continue the message or the fix.
    const std::size_t mark = line.find(kError);
    if (mark == 0 || (mark != std::string::npos && line.substr(0, mark).ends_with(": "))) {
      out = {line.substr(mark + kError.size()), {line.substr(0, mark == 0 ? 0 : mark - 2)}, ""};
      found = true;
    } else if (line.starts_with(kFix)) {
      out.fix = line.substr(kFix.size());
    } else {
      (out.fix.empty() ? out.message : out.fix) += fmt::format("\n{}", line);
    }
  }
  return found ? std::optional(std::move(out)) : std::nullopt;
}

namespace {

using Json = nlohmann::json;

std::optional<double> number(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::int64_t whole(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || !found->is_number_integer() ? 0 : found->get<std::int64_t>();
}

std::vector<double> numbers_at(const Json& object, const char* key) {
  std::vector<double> out;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return out;
  for (const Json& value : *found) out.push_back(value.is_number() ? value.get<double>() : 0);
  return out;
}

}  // namespace

std::optional<WorkerNumbers> read_worker_numbers(const std::string& path) {
  // A page of numbers, and 8 per evaluated image.
  constexpr std::size_t kMax = std::size_t{1} << 26U;
  const Result<std::string> text = read_file(path, kMax);
  if (!text) return std::nullopt;
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  WorkerNumbers out;
  out.steps = whole(json, "steps");
  out.first_loss = number(json, "first_loss");
  out.last_loss = number(json, "last_loss");
  out.step_ms_median = number(json, "step_ms_median").value_or(0);
  out.samples_per_s = number(json, "samples_per_s").value_or(0);
  out.watch_share = number(json, "watch_share").value_or(0);
  out.recording_share = number(json, "recording_share").value_or(0);
  out.data_wait_share = number(json, "data_wait_share").value_or(0);
  out.skipped_items = whole(json, "skipped_items");
  out.idle_share = number(json, "idle_share");
  out.peak_rss_bytes = whole(json, "peak_rss_bytes");
  out.step_flops = numbers_at(json, "step_flops");
  if (const auto found = json.find("balance"); found != json.end() && found->is_object()) {
    out.balance = {whole(*found, "fixed_steps"),
                   whole(*found, "balanced_steps"),
                   number(*found, "fixed_idle_share").value_or(0),
                   number(*found, "balanced_idle_share").value_or(0),
                   number(*found, "image_ms").value_or(0),
                   number(*found, "text_ms").value_or(0)};
  }
  if (const auto found = json.find("retrieval"); found != json.end() && found->is_object()) {
    out.retrieval = {number(*found, "recall_at_1").value_or(0),
                     number(*found, "recall_at_5").value_or(0),
                     number(*found, "recall_at_10").value_or(0),
                     number(*found, "chance").value_or(0),
                     whole(*found, "items"),
                     numbers_at(*found, "image_sketches")};
  }
  return out;
}

namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20U;
constexpr std::size_t kInnermost = 3;  // innermost frames: what waits, and for what
constexpr std::size_t kOfProgram = 2;  // frames of ours: which part of the training called it

// The function of a stack line: "#3  a::b(int) from /lib/x.so" → "a::b". Empty if the frame has no
// name.
std::string function_of(std::string_view line) {
  line.remove_prefix(std::min(line.find(' '), line.size()));
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  if (line.starts_with("??")) return "";
  // The name ends at the arguments: at the first parenthesis that is not part of "(anonymous
  // namespace)" or of operator().
  std::size_t end = line.find('(');
  for (std::string_view part : {"(anonymous namespace)", "()("}) {
    while (end != std::string_view::npos && line.substr(end).starts_with(part))
      end = line.find('(', end + part.size() - (part == "()(" ? 1 : 0));
  }
  std::string_view name = line.substr(0, end);
  while (name.ends_with(' ')) name.remove_suffix(1);
  return printable(name);
}

}  // namespace

std::string hanging_location(const std::string& stack_file) {
  const Result<std::string> text = read_file(stack_file, kMaxBytes);
  if (!text) return "";
  std::vector<std::string> shown;
  std::size_t of_program = 0;
  std::istringstream lines(*text);
  // Only the first thread that has a stack; the main thread is written first.
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("(no stack: ")) return printable(line.substr(1, line.size() - 2));
    if (line.empty() && !shown.empty()) break;  // a blank line separates threads
    if (!line.starts_with('#')) continue;
    const std::string name = function_of(line);
    if (name.empty()) continue;
    const bool ours = name.find("lockstep::") != std::string::npos;
    if (shown.size() < kInnermost || (ours && of_program < kOfProgram)) {
      shown.push_back(name);
      of_program += ours ? 1 : 0;
    }
  }
  std::string out;
  for (const std::string& name : shown) out += (out.empty() ? "" : " < ") + name;
  return out;
}

namespace {

constexpr auto kEndMarkOffset = static_cast<off_t>(offsetof(trace::ring::Header, end_mark));
static_assert(sizeof(trace::ring::Header::end_mark) == sizeof(std::uint32_t));

// Reads the magic number and the end mark; false if the file is too short.
bool read_header(int file, char (&magic)[sizeof trace::ring::kMagic], std::uint32_t& mark) {
  return pread(file, magic, sizeof magic, 0) == static_cast<ssize_t>(sizeof magic) &&
         pread(file, &mark, sizeof mark, kEndMarkOffset) == static_cast<ssize_t>(sizeof mark);
}

}  // namespace

Status mark_ended(const std::string& ring_file, trace::End end) {
  const int file = open(ring_file.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return system_error("cannot write", errno, ring_file);
  char magic[sizeof trace::ring::kMagic];
  std::uint32_t mark = 0;
  const bool readable =
      read_header(file, magic, mark) &&
      std::equal(std::begin(magic), std::end(magic), std::begin(trace::ring::kMagic));
  bool written = readable;
  // Keep a mark that the process wrote itself.
  if (readable && mark == static_cast<std::uint32_t>(trace::ring::EndMark::none)) {
    mark = static_cast<std::uint32_t>(end);  // the same numbers: formats/ring/reader.cc
    written = pwrite(file, &mark, sizeof mark, kEndMarkOffset) == static_cast<ssize_t>(sizeof mark);
  }
  close(file);
  if (!readable)
    return Error{"not a ring file", {ring_file}, "name the ring file of a killed rank"};
  if (!written)
    return Error{"the end mark cannot be written", {ring_file}, "check the disk that it is on"};
  return Status::ok();
}

}  // namespace lockstep::runtime
