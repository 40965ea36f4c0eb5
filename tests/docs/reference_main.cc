// reference_pages FOLDER: writes docs/reference. Ends with 1 where a page cannot be written.
#include <filesystem>
#include <fstream>
#include <iostream>

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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: reference_pages FOLDER\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  for (const auto& [name, text] : lockstep::docs::reference_pages(printed)) {
    std::ofstream file(folder / name, std::ios::binary);
    file << text << std::flush;
    if (!file) {
      std::cerr << "cannot write " << (folder / name).string() << "\n";
      return 1;
    }
  }
  return 0;
}
