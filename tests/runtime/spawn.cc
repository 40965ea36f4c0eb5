#include "tests/runtime/spawn.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <thread>

#include "trace/formats/ring/reader.h"

namespace lockstep::runtime {
namespace {

constexpr auto kTimeout = std::chrono::seconds(60);
constexpr ExitStatus kThrew = 99;

[[noreturn]] void be_rank(int rank, const std::function<ExitStatus(int rank)>& body) {
  ExitStatus status = kThrew;
  try {
    status = body(rank);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
  }
  std::fflush(stderr);
  _exit(status);  // no destructors of the parent's objects
}

ExitStatus reap(pid_t process, std::chrono::steady_clock::time_point deadline) {
  int status = 0;
  while (waitpid(process, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) kill(process, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string shape_text(const trace::IntList& flat) {
  std::string text;
  for (const auto& shape : trace::unflatten_shapes(flat)) {
    text += "[";
    for (std::size_t i = 0; i < shape.size(); ++i) {
      text += (i == 0 ? "" : ",") + std::to_string(shape[i]);
    }
    text += "]";
  }
  return text;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

}  // namespace

std::vector<ExitStatus> spawn(int ranks, const std::function<ExitStatus(int rank)>& body) {
  std::fflush(nullptr);
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t process = fork();
    if (process == 0) be_rank(rank, body);
    processes.push_back(process);
  }
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  std::vector<ExitStatus> statuses;
  for (const pid_t process : processes) statuses.push_back(reap(process, deadline));
  return statuses;
}

std::vector<std::string> Recorded::calls(std::int32_t step) const {
  std::vector<std::string> lines;
  for (const trace::Call& call : trace.calls) {
    if (step != INT32_MIN && call.step != step) continue;
    const trace::Signature& s = tables.signatures[call.signature];
    std::string line(trace::op_name(s.op));
    line += " " + tables.str(call.group) + ":" + std::to_string(call.seq);
    if (s.in.value != 0) {
      line += " " + joined(tables.names(s.dtypes)) + shape_text(tables.int_lists[s.in]);
    }
    if (s.redop.value != 0) line += " " + tables.str(s.redop);
    if (call.what.value != 0) line += " " + joined(tables.names(call.what));
    if (call.tag.value != 0) line += " #" + tables.str(call.tag);
    lines.push_back(std::move(line));
  }
  return lines;
}

Recorded recorded(const std::string& folder, int rank) {
  Recorded result;
  auto trace =
      trace::read_ring_file(folder + "/rank_" + std::to_string(rank) + ".ring", result.tables);
  LOCKSTEP_CHECK(static_cast<bool>(trace), "the rank left no trace");
  result.trace = std::move(*trace);
  return result;
}

}  // namespace lockstep::runtime
