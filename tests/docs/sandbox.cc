#include "tests/docs/sandbox.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <regex>
#include <utility>

#include <fmt/format.h>

#include "tests/support/trace_lines.h"
#include "tests/support/two_towers.h"
#include "trace/formats/ring/writer.h"

namespace lockstep::docs {
namespace {

namespace fs = std::filesystem;

// Two all-reduces; of another size in the second one where `numel` says so.
std::string trace(int rank, int numel) {
  const auto call = [](int id, int elements) {
    return issue_line(id, "world", "all_reduce",
                      {{"in", {{elements}}}, {"dtype", "float32"}, {"redop", "sum"}});
  };
  return header_line(rank, 2, {{"backend", "gloo"}}) + call(0, 8) + call(1, numel) +
         end_line("clean");
}

// What a rank records that waits for ever in its second all-reduce, of `numel` elements.
void record(const std::string& folder, int rank, std::int64_t numel) {
  trace::RingWriter::Options options;
  options.path = fmt::format("{}/rank_{}.ring", folder, rank);
  options.rank = trace::Rank(rank);
  options.world_size = 2;
  options.capacity = 256;
  auto ring = trace::RingWriter::create(options);
  if (!ring) _exit(1);
  trace::RingWriter::Issue issue;
  issue.group = (*ring)->make_group("world", std::vector<std::int32_t>{0, 1});
  trace::RingWriter::SignatureFields fields;
  fields.op = trace::Op::all_reduce;
  fields.has_in = fields.has_out = true;
  for (std::uint32_t seq = 0; seq < 2; ++seq) {
    fields.in = fields.out = {{seq == 0 ? 16 : numel}};
    issue.signature = (*ring)->make_signature(fields);
    issue.seq = seq;
    const std::uint32_t call = (*ring)->issue(issue);
    (*ring)->wait(call);
    if (seq == 1) break;
    (*ring)->complete(call);
    (*ring)->waited(call);
  }
}

constexpr const char* kJob = R"(lockstep: 1
name: my job
ranks: 2
data: {text_only: 0.3}
strategy: ddp
remedy: dummy-image
train: {steps: 3, batch_size: 4, seed: 1}
)";

}  // namespace

Sandbox::Sandbox(std::string program_folder) : programs_(std::move(program_folder)) {
  for (const char* linked : {"examples", "scenarios", "sim", "runtime", "scripts"})
    fs::create_directory_symlink(std::string(LOCKSTEP_SOURCE_DIR) + "/" + linked,
                                 folder_.file(linked));
  fs::create_directories(folder_.file("build"));
  fs::create_directory_symlink(programs_, folder_.file("build/full"));
  write_traces();
  write_rings();
  write_products();
  write_foreign();
  for (const char* job : {"job.yaml", "my-job.yaml"}) folder_.write(job, kJob);
  // As `lockstep calibrate`, which is not run, would write it.
  folder_.write("here.yaml",
                "machine: 1\nname: here\nranks_per_node: 64\ncores: 2\n"
                "compute: {float32: {peak: 50GFLOP/s}}\nmemory: {bandwidth: 20GB/s}\n"
                "links: [{alpha: 50us, beta: 3GB/s}]\n");
}

void Sandbox::write_traces() const {
  for (const char* name : {"traces", "program", "run-1"}) {
    fs::create_directories(folder_.file(name));
    for (int rank = 0; rank < 2; ++rank)
      folder_.write(fmt::format("{}/rank_{}.trace.jsonl", name, rank), trace(rank, 8));
  }
  folder_.write("known.yaml",
                "- {rule: never-waited, reason: the new scheduler, expires: never}\n");
  fs::create_directories(folder_.file("rack7"));
  std::string ignored;
  run("lockstep convert --to digest traces -o rack7/node1.digest -q", 60, ignored);
}

void Sandbox::write_rings() const {
  for (const char* job : {"tmp/job-4711", "tmp/job"}) {
    const std::string folder = folder_.file(job);
    fs::create_directories(folder);
    for (int rank = 0; rank < 2; ++rank) {
      const pid_t writer = fork();  // a process that is gone afterwards, as of a killed job
      if (writer == 0) {
        record(folder, rank, 16 + rank);
        _exit(0);
      }
      waitpid(writer, nullptr, 0);
    }
  }
  fs::create_directories(folder_.file("shared/4711"));
  std::string ignored;
  run("lockstep convert --to digest tmp/job-4711 -o shared/4711/node1.digest -q", 60, ignored);
}

// Under "text" the gradient of the image tower is left out in `a` and `derived`.
void Sandbox::write_products() const {
  for (const std::string program : {"a", "b", "derived"})
    write_two_towers(folder_, program, /*text_reduces_all=*/program == "b");
}

void Sandbox::write_foreign() const {
  const std::string corpus = LOCKSTEP_SOURCE_DIR "/tests/fuzz/corpus/";
  const auto copy = [&](const std::string& from, const std::string& to) {
    fs::create_directories(fs::path(folder_.file(to)).parent_path());
    fs::copy_file(corpus + from, folder_.file(to));
  };
  for (int rank = 0; rank < 4; ++rank)  // as many as the dump names
    copy("flight_recorder/gloo_2.11.json", fmt::format("dumps/node0_rank{}", rank));
  std::string ignored;
  run("tar czf dumps.tar.gz dumps", 60, ignored);
  const std::string profile = TempDir::read(corpus + "kineto/calls_and_kernels");
  fs::create_directories(folder_.file("shared/profiles"));
  for (const std::string rank : {"0", "1"})
    folder_.write(
        "shared/profiles/rank_" + rank + ".pt.trace.json",
        std::regex_replace(profile, std::regex("\"rank\": 0,"), "\"rank\": " + rank + ","));
  folder_.write("rank_0.jsonl", TempDir::read(corpus + "nsys/one_rank"));
  folder_.write("rank_0.sqlite", TempDir::read(corpus + "nsys/database"));
  const std::string work = TempDir::read(corpus + "kineto/work");
  fs::create_directories(folder_.file("profiles"));
  for (const std::string rank : {"0", "1"})
    folder_.write("profiles/rank_" + rank + ".pt.trace.json",
                  std::regex_replace(work, std::regex("\"rank\": 0,"), "\"rank\": " + rank + ","));
  copy("safetensors/two.safetensors", "model.safetensors");
  folder_.write("config.json",
                R"({"model_type":"bert","hidden_size":32,"num_hidden_layers":1,
"num_attention_heads":2,"intermediate_size":64,"vocab_size":100,"max_position_embeddings":32})");
  copy("nccl_log/calls", "shared/logs/nccl.node0.1");
  copy("watchdog_log/one_never_came", "job.log");
  folder_.write("nccl_allreduce_h100_a100.json",
                R"({"columns":["bytes","time_oop_us"],"machines":{"h100_8_nvls":{"gpus":8,
"rows":[[65536,19.54],[16777216,123.8]]},"a100_16_40gb":{"gpus":16,"nodes":2,
"rows":[[65536,51.69]]}}})");
}

int Sandbox::run(const std::string& command, int seconds, std::string& output) const {
  static const std::regex kOutside(R"((^|[ =@'"])/(tmp|shared)/)");
  const std::string inside = std::regex_replace(command, kOutside, "$1" + folder_.path() + "/$2/");
  const std::string script = folder_.write("command.sh", inside + "\n");
  const std::string shell =
      fmt::format("cd {} && PATH={}:$PATH timeout {} sh {} > output.log 2>&1 < /dev/null",
                  folder_.path(), programs_, seconds, script);
  const int status = std::system(shell.c_str());
  output = TempDir::read(folder_.file("output.log"));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

}  // namespace lockstep::docs
