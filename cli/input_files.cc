#include "cli/input_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "base/files/read_file.h"
#include "base/text.h"
#include "sim/transformer/transformer.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::path& path) {
  std::error_code unknown;
  return fs::is_directory(path, unknown);
}

}  // namespace

std::optional<std::string> shipped_folder(const std::string& kind, const std::string& program) {
  const fs::path folder = fs::path(program).parent_path();
  // PREFIX/bin/lockstep, and the wheel's lockstep/bin/lockstep: share/lockstep is next to bin.
  const fs::path installed = (folder / ".." / "share" / "lockstep" / kind).lexically_normal();
  if (is_folder(installed)) return installed.string();
  // build/core/lockstep in the repository, where machines and plans are the simulator's.
  const fs::path source = (folder / ".." / "..").lexically_normal();
  const bool of_simulator = kind == "machines" || kind == "plans";
  const fs::path built = of_simulator ? source / "sim" / kind : source / kind;
  if (is_folder(source / "examples" / "hung-job") && is_folder(built)) return built.string();
  return std::nullopt;
}

std::optional<std::string> shipped_folder(const std::string& kind) {
  std::error_code unknown;
  return shipped_folder(kind, fs::read_symlink("/proc/self/exe", unknown).string());
}

std::vector<std::string> shipped_names(const std::string& kind) {
  std::vector<std::string> out;
  const std::optional<std::string> folder = shipped_folder(kind);
  if (!folder) return out;
  std::error_code failed;
  for (fs::directory_iterator it(*folder, failed), end; !failed && it != end; it.increment(failed))
    if (it->path().extension() == ".yaml") out.push_back(it->path().stem().string());
  std::sort(out.begin(), out.end());
  return out;
}

Result<std::string> shipped_or_own(const std::string& kind, const std::string& given) {
  std::error_code unknown;
  // "dgx-h100" is a name; "dgx-h100.yaml" and "machines/dgx-h100" are files that must be there.
  const bool a_path = given.find_first_of("/.") != std::string::npos;
  if (given.empty() || a_path || fs::exists(given, unknown)) return given;
  const std::vector<std::string> names = shipped_names(kind);
  if (std::find(names.begin(), names.end(), given) != names.end())
    return fmt::format("{}/{}.yaml", *shipped_folder(kind), given);
  return Error{
      fmt::format("\"{}\" is neither a file nor one of the shipped {}", printable(given), kind),
      {},
      names.empty()
          ? fmt::format("name a file: no {} are installed with this program", kind)
          : did_you_mean(given, names, fmt::format("name a file, or one of {}", join_and(names)))};
}

Result<std::string> plan_or_own(const std::string& given) {
  Result<std::string> file = shipped_or_own("plans", given);
  // Without shipped plans nobody knows whether the name is not of one, too.
  if (file || shipped_names("plans").empty() || !sim::published_model(given)) return file;
  return Error{fmt::format("{} is a model, and no plan of how it is trained", given),
               {},
               fmt::format("take a plan and set its model: llama3-70b --set model={}, or write "
                           "`model: {}` into your own",
                           given, given)};
}

Status StandardInput::take(std::string& path) {
  if (path != "-") return Status::ok();
  if (file_.empty()) {
    const Result<std::string> text = read_input(path);
    if (!text) return text.error();
    if (text->empty())
      return Error{"standard input is empty", {path}, "pipe a file into this command, or name one"};
    folder_.emplace("", "lockstep-input-");
    const std::string file = folder_->path() + "/standard-input.yaml";
    if (const Status kept = write_file(file, *text); !kept) return kept;
    file_ = file;
  }
  path = file_;
  return Status::ok();
}

std::string StandardInput::name_of(const std::string& path) const {
  return has(path) ? "standard input" : path;
}

}  // namespace lockstep::cli
