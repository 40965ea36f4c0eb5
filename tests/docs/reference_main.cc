// reference_pages FOLDER: writes docs/reference. Ends with 1 where a page cannot be written.
// reference_pages --examples FOLDER: makes the reports in the rules' pages (verify/rules) again.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "cli/program.h"
#include "tests/docs/reference.h"

namespace {

// What the program prints, which this process is.
std::string printed(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"lockstep"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  std::ostringstream out;
  std::streambuf* const before = std::cout.rdbuf(out.rdbuf());
  lockstep::cli::run_program(static_cast<int>(argv.size()), argv.data());
  std::cout.rdbuf(before);
  return out.str();
}

bool write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (!file) std::cerr << "cannot write " << path.string() << "\n";
  return static_cast<bool>(file);
}

bool renew_examples(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".md") continue;
    std::ostringstream page;
    page << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    const std::string renewed = lockstep::docs::with_reports(page.str(), printed);
    if (renewed != page.str() && !write(entry.path(), renewed)) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--examples") return renew_examples(argv[2]) ? 0 : 1;
  if (argc != 2) {
    std::cerr << "usage: reference_pages FOLDER\n       reference_pages --examples FOLDER\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  for (const auto& [name, text] : lockstep::docs::reference_pages(printed))
    if (!write(folder / name, text)) return 1;
  return 0;
}
