#include "tests/verify/product/python_checker.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "base/check.h"
#include "tests/support/temp_dir.h"
#include "trace/formats/text/text_trace.h"

namespace lockstep::verify {
namespace {

namespace fs = std::filesystem;

// Reads a line of arguments, answers with the status and what was printed.
constexpr const char* kServer = R"(
import contextlib, importlib.util, io, json, sys
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("checker", sys.argv[1])
checker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(checker)
answers = open(sys.argv[2], "w")
for line in sys.stdin:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        status = checker.main(json.loads(line))
    answers.write(f"{status} {said.getvalue().strip()}\n")
    answers.flush()
)";

class Server {
 public:
  Server() {
    folder_.write("server.py", kServer);
    const std::string answers = folder_.file("answers");
    LOCKSTEP_CHECK(std::system(("mkfifo " + answers).c_str()) == 0, "a pipe");
    const std::string command = "exec python3 -I " + folder_.file("server.py") + " " +
                                LOCKSTEP_CERTIFICATE_CHECKER + " " + answers;
    in_ = ::popen(command.c_str(), "w");
    LOCKSTEP_CHECK(in_ != nullptr, "python3");
    out_.open(answers);
  }
  ~Server() {
    if (in_ != nullptr) ::pclose(in_);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // `paths`: without characters that JSON escapes.
  CheckerSays ask(const std::string& certificate, const std::string& path) {
    std::fputs(("[\"" + certificate + "\", \"" + path + "\"]\n").c_str(), in_);
    std::fflush(in_);
    CheckerSays says;
    std::string line;
    if (!std::getline(out_, line)) return says;
    std::istringstream(line) >> says.status;
    says.why = line.substr(line.find(' ') + 1);
    return says;
  }

 private:
  TempDir folder_;
  std::FILE* in_ = nullptr;
  std::ifstream out_;
};

Server& server() {
  static Server one;
  return one;
}

void write_traces(const trace::Run& run, const fs::path& folder) {
  fs::create_directories(folder);
  for (const trace::RankTrace& trace : run.ranks) {
    std::ofstream file(folder / ("rank_" + std::to_string(trace.rank.value) + ".trace.jsonl"));
    trace::write_text_trace(file, trace, run.tables);
  }
}

}  // namespace

CheckerSays check_run_certificate(const std::string& certificate, const trace::Run& run) {
  const TempDir work;
  work.write("certificate", certificate);
  write_traces(run, work.file("run"));
  return server().ask(work.file("certificate"), work.file("run"));
}

CheckerSays check_certificate(const std::string& certificate, const trace::Derivation& derivation) {
  const TempDir work;
  work.write("certificate", certificate);
  for (std::size_t h = 0; h < derivation.runs.size(); ++h)
    write_traces(derivation.runs[h], work.file(derivation.spec.histories[h].folder));
  work.write("product.json", trace::product_text(derivation.spec));
  return server().ask(work.file("certificate"), work.path());
}

}  // namespace lockstep::verify
