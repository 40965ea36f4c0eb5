#include "tests/runtime/record/nccl/ranks.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <sstream>

#include <gtest/gtest.h>

#include "trace/load.h"
#include "verify/rules/rules.h"
#include "verify/verify.h"

namespace lockstep::runtime {
namespace {

constexpr unsigned kLongest = 60;  // seconds

[[noreturn]] void be_process(const Variables& variables, const std::function<int()>& body) {
  ::alarm(kLongest);
  for (const char* const name : {"RANK", "WORLD_SIZE", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK",
                                 "PMI_RANK", "LOCKSTEP_RECORD_DIR", "LOCKSTEP_RECORD_EVENTS"})
    ::unsetenv(name);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  int status = 99;
  try {
    status = body();
  } catch (const std::exception&) {
  }
  std::exit(status);  // as a program does: what is registered for the exit runs
}

pid_t start(const Variables& variables, const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) be_process(variables, body);
  return pid;
}

int status_of(pid_t pid) {
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid) return -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

trace::Run run_of(const std::string& folder) {
  Result<trace::Run> run = trace::load_run({folder});
  if (run) return std::move(*run);
  ADD_FAILURE() << run.error().str();
  return {};
}

const trace::RankTrace& trace_of(const trace::Run& run, int rank) {
  static const trace::RankTrace none;
  const trace::RankTrace* const trace = run.find(trace::Rank(rank));
  EXPECT_NE(trace, nullptr) << "rank " << rank << " left no trace";
  return trace != nullptr ? *trace : none;
}

}  // namespace

int run_process(const Variables& variables, const std::function<int()>& body) {
  return status_of(start(variables, body));
}

std::vector<int> run_ranks(int ranks, const std::string& folder,
                           const std::function<int(int rank)>& body) {
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    const Variables variables = {{"RANK", std::to_string(rank)},
                                 {"WORLD_SIZE", std::to_string(ranks)},
                                 {"LOCKSTEP_RECORD_DIR", folder}};
    pids.push_back(start(variables, [&body, rank] { return body(rank); }));
  }
  std::vector<int> out;
  for (const pid_t pid : pids) out.push_back(status_of(pid));
  return out;
}

std::vector<std::string> findings(const std::string& folder) {
  const trace::Run run = run_of(folder);
  std::vector<std::string> out;
  for (const verify::Finding& finding : verify::verify(run, {}).findings) {
    if (finding.severity != verify::Severity::error &&
        finding.severity != verify::Severity::warning)
      continue;
    std::ostringstream line;
    line << verify::rule(finding.rule).name << ":";
    for (const trace::Rank rank : finding.culprits) line << " " << rank.value;
    out.push_back(line.str());
  }
  return out;
}

std::vector<std::string> calls(const std::string& folder, int rank) {
  const trace::Run run = run_of(folder);
  std::vector<std::string> out;
  for (const trace::Call& call : trace_of(run, rank).calls) {
    const trace::Signature& signature = run.tables.signatures[call.signature];
    std::ostringstream line;
    if (signature.op == trace::Op::other) {
      line << run.tables.str(signature.other_op);
    } else {
      line << trace::op_name(signature.op);
    }
    line << " " << run.tables.str(call.group);
    for (const std::string& dtype : run.tables.names(signature.dtypes)) line << " " << dtype;
    line << " ";
    if (signature.in_elements >= 0) line << signature.in_elements;
    line << ">";
    if (signature.out_elements >= 0) line << signature.out_elements;
    if (!run.tables.str(signature.redop).empty()) line << " " << run.tables.str(signature.redop);
    if (signature.root != trace::kNone) line << " root " << signature.root;
    if (call.peer.value != trace::kNone) line << " peer " << call.peer.value;
    if (call.has(trace::kStarted)) line << " begun";
    if (call.has(trace::kCompleted)) line << " done";
    out.push_back(line.str());
  }
  return out;
}

int gpu(const std::string& folder, int rank) { return trace_of(run_of(folder), rank).gpu; }

std::vector<std::string> groups(const std::string& folder, int rank) {
  const trace::Run run = run_of(folder);
  std::vector<std::string> out;
  for (const auto& membership : trace_of(run, rank).groups) {
    std::string line = run.tables.str(membership.group);
    for (const trace::Rank member : membership.ranks) line += " " + std::to_string(member.value);
    const std::string& desc = run.tables.str(membership.desc);
    out.push_back(desc.empty() ? line : line + " (" + desc + ")");
  }
  return out;
}

std::string ending(const std::string& folder, int rank) {
  const trace::Run run = run_of(folder);
  const trace::RankTrace& trace = trace_of(run, rank);
  constexpr const char* kEnds[] = {"cut", "clean", "hung", "exception", "killed"};
  std::string out = kEnds[static_cast<std::size_t>(trace.end)];
  for (const trace::ExceptionMark& mark : trace.exceptions)
    out += (mark.call ? " in a call: " : ": ") + mark.what;
  if (trace.damaged_count > 0) out += ", damaged";
  return out;
}

}  // namespace lockstep::runtime
