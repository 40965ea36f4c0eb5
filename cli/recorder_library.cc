#include "cli/recorder_library.h"

#include <filesystem>
#include <iostream>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/environment.h"
#include "base/files/read_file.h"
#include "base/text.h"
#include "cli/child_process.h"

namespace lockstep::cli {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLibrary = "liblockstep_record.so";

// The version of torch that a recorder was built for: the library contains it as text. Empty if the
// file is not a recorder.
std::string version_of_recorder(const fs::path& library) {
  constexpr std::size_t kMax = std::size_t{1} << 28U;
  constexpr std::string_view kKey = "LOCKSTEP_RECORDS_TORCH=";
  const Result<std::string> bytes = read_file(library.string(), kMax);
  if (!bytes) return {};
  const std::size_t at = bytes->find(kKey);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + kKey.size();
  return bytes->substr(begin, bytes->find_first_not_of("0123456789.", begin) - begin);
}

// Folders in which a recorder may be: next to this program, or among the libraries of its
// installation.
std::vector<fs::path> recorder_folders(const std::string& version) {
  std::error_code none;
  const fs::path here = fs::read_symlink("/proc/self/exe", none).parent_path();
  std::vector<fs::path> out = {here, here / "../recorder", here / "../lib", here / "../lib64",
                               here / "../lib/x86_64-linux-gnu"};
  // Users with several versions of torch have a folder for each, among those of libraries.
  for (const std::size_t i : {2U, 3U, 4U}) out.push_back(out[i] / fmt::format("torch-{}", version));
  return out;
}

// The script that builds a recorder, if this program is in its source tree; else empty.
fs::path build_script() {
  std::error_code none;
  const fs::path here = fs::read_symlink("/proc/self/exe", none).parent_path();
  const fs::path script = here / "../../scripts/build-recorder";
  return is_program(script.string()) ? fs::weakly_canonical(script, none) : fs::path();
}

}  // namespace

std::string found_in_path(const std::string& program) {
  return find_program(program, environment_variable("PATH"));
}

std::string python_of(const std::string& program) {
  // "/opt/conda/bin/python3.11".
  if (fs::path(program).filename().string().starts_with("python")) return program;
  constexpr std::size_t kMax = std::size_t{1} << 24U;  // scripts are small, programs are not read
  const Result<std::string> text = read_file(program, kMax);
  if (!text || !text->starts_with("#!")) return {};
  // "#!/usr/bin/env python3" has it in the second word, "#!/opt/conda/bin/python" in the first.
  std::istringstream words(text->substr(2, text->find('\n') - 2));
  for (std::string word; words >> word;)
    if (fs::path(word).filename().string().starts_with("python")) return found_in_path(word);
  return {};
}

Result<std::string> torch_version_of(const std::string& python) {
  // Prints "2.15.0", also for "2.15.0+cu130", because the recorder is the same.
  constexpr const char* kAsk =
      "import importlib.util as u, pathlib, re\n"
      "s = u.find_spec('torch')\n"
      "f = pathlib.Path(s.origin).parent / 'version.py' if s and s.origin else None\n"
      "v = re.search(r\"__version__ = '([0-9.]+)\", f.read_text()) if f else None\n"
      "print(v.group(1) if v else '')\n";
  const std::optional<std::string> version = output_of({python, "-c", kAsk});
  if (!version || version->empty()) {
    return Error{"there is no torch in the Python that the command starts",
                 {python},
                 "name the Python of the job with --python"};
  }
  return *version;
}

Result<std::string> recorder_for(const std::string& named, const std::string& python,
                                 const std::string& torch) {
  std::error_code none;
  if (!named.empty()) {
    const std::string version = version_of_recorder(named);
    if (version == torch) return fs::absolute(named, none).string();
    return Error{version.empty() ? "this is not a recorder"
                                 : fmt::format("this recorder is for torch {}, and the job has {}",
                                               version, printable(torch)),
                 {named},
                 "leave --library out, or build it: scripts/build-recorder --python PYTHON"};
  }
  for (const fs::path& folder : recorder_folders(torch)) {
    const fs::path library = folder / kLibrary;
    // Only for exactly that version: LibTorch's binary interface may change with each release.
    if (version_of_recorder(library) == torch) return fs::weakly_canonical(library, none).string();
  }
  const fs::path script = build_script();
  if (script.empty()) {
    return Error{fmt::format("no recorder for torch {} is installed", printable(torch)),
                 {python},
                 "build it in Lockstep's source tree, and name it with --library: "
                 "scripts/build-recorder --python PYTHON"};
  }
  std::cerr << "lockstep: building the recorder for torch " << printable(torch)
            << ", which takes some minutes the first time\n";
  const std::optional<std::string> built = output_of({script.string(), "--python", python});
  if (!built || version_of_recorder(*built) != torch)
    return Error{"the recorder could not be built", {script.string()}, "run it by hand"};
  return *built;
}

}  // namespace lockstep::cli
