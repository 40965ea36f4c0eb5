#include "sim/sweep/book.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files/read_file.h"
#include "base/files/write_file.h"
#include "base/result.h"
#include "base/text.h"

namespace lockstep::sim {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kIdentityFile = "/sweep.json";
constexpr const char* kResultsFile = "/results.jsonl";
constexpr std::size_t kIdentityBytes = std::size_t{1} << 20U;
constexpr std::size_t kResultsBytes = std::size_t{1} << 30U;

OrderedJson identity_json(const SweepIdentity& identity) {
  OrderedJson out = {{"sweep", 1}, {"lockstep", identity.version}, {"scenario", identity.scenario}};
  out["steps"] = identity.steps ? OrderedJson(*identity.steps) : OrderedJson();
  out["meta"] = identity.on_meta ? OrderedJson(*identity.on_meta) : OrderedJson();
  out["machines"] = identity.machines;
  return out;
}

Error other_sweep(const std::string& file, const std::string& what) {
  return {fmt::format("the results in this folder are of another {}", what),
          {file},
          "name another folder with --output-dir, or remove this one"};
}

// Checks that the folder holds the same sweep. Returns the identity to write, with the machines of
// both. Errors: another sweep.
Result<OrderedJson> joined_identity(const OrderedJson& there, const OrderedJson& now,
                                    const std::string& file) {
  constexpr std::pair<const char*, const char*> kParts[] = {
      {"sweep", "format"},
      {"lockstep", "version of lockstep"},
      {"scenario", "scenario, or of this one before it was changed"},
      {"steps", "number of --steps"},
      {"meta", "choice of --meta or --no-meta"}};
  const Error strange{"this is not what a sweep writes", {file}, "name another folder"};
  if (!there.is_object() || !there.contains("machines") || !there["machines"].is_object())
    return strange;
  for (const auto& [key, what] : kParts)
    if (!there.contains(key) || there[key] != now[key]) return other_sweep(file, what);
  OrderedJson out = now;
  for (const auto& [machine, hash] : there["machines"].items()) {
    if (!hash.is_string()) return strange;
    if (!out["machines"].contains(machine))
      out["machines"][machine] = hash;
    else if (out["machines"][machine] != hash)
      return other_sweep(file, fmt::format("machine: {} was changed since", printable(machine)));
  }
  return out;
}

// Checks that a sweep may write here. A folder with only an empty results file belongs to a sweep
// that was killed before it wrote its identity.
Status check_is_ours(const std::string& folder) {
  std::error_code failed;
  if (std::filesystem::exists(folder + kIdentityFile, failed)) return Status::ok();
  for (std::filesystem::directory_iterator it(folder, failed), end; !failed && it != end;
       it.increment(failed)) {
    std::error_code unknown;
    const bool begun = "/" + it->path().filename().string() == kResultsFile &&
                       std::filesystem::file_size(it->path(), unknown) == 0;
    if (!begun)
      return Error{"this folder is not empty, and no sweep's", {folder}, "name a new one"};
  }
  return failed ? Status(system_error("cannot read the folder", failed.value(), folder))
                : Status::ok();
}

// The new content of sweep.json; empty if it need not change. Errors: the folder holds another
// sweep.
Result<std::optional<OrderedJson>> identity_to_write(const std::string& folder,
                                                     const SweepIdentity& identity) {
  if (const Status ok = check_is_ours(folder); !ok) return ok.error();
  const std::string file = folder + kIdentityFile;
  OrderedJson now = identity_json(identity);
  std::error_code unknown;
  if (!std::filesystem::exists(file, unknown)) return std::optional(std::move(now));
  const Result<std::string> text = read_file(file, kIdentityBytes);
  if (!text) return text.error();
  // Deeper values are dropped while parsing: adding a member to an ordered_json object copies the
  // members before it, however deep they are.
  const auto keep = [](int depth, OrderedJson::parse_event_t, const OrderedJson&) {
    return depth <= 2;
  };
  const OrderedJson there = OrderedJson::parse(*text, keep, /*allow_exceptions=*/false);
  Result<OrderedJson> both = joined_identity(there, now, file);
  if (!both) return both.error();
  return *both == there ? std::optional<OrderedJson>() : std::optional(std::move(*both));
}

}  // namespace

SweepFolder::SweepFolder(SweepFolder&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      rows_(std::move(other.rows_)),
      was_cut_(other.was_cut_) {}

SweepFolder::~SweepFolder() {
  if (descriptor_ >= 0) ::close(descriptor_);  // and gives the lock back
}

Result<SweepFolder> SweepFolder::open(const std::string& path, const SweepIdentity& identity) {
  if (const Status ok = make_folder(path); !ok) return ok.error();
  // Checked first without the lock, before creating a file in somebody else's folder.
  if (const auto ours = identity_to_write(path, identity); !ours) return ours.error();
  const std::string file = path + kResultsFile;
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) return system_error("cannot open", errno, file);
  SweepFolder out(file, descriptor);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return system_error("cannot lock", errno, file);
    return Error{"another sweep is writing here", {file}, "wait for it, or name another folder"};
  }
  // Checked again under the lock, when nobody else can change it.
  const auto now = identity_to_write(path, identity);
  if (!now) return now.error();
  if (*now) {
    const std::string text =
        fmt::format("{}\n", (*now)->dump(2, ' ', false, OrderedJson::error_handler_t::replace));
    if (const Status ok = write_file(path + kIdentityFile, text); !ok) return ok.error();
  }
  if (const Status ok = out.read_rows(); !ok) return ok.error();
  return out;
}

Status SweepFolder::read_rows() {
  const Result<std::string> text = read_file(path_, kResultsBytes);
  if (!text) return text.error();
  const std::size_t whole = text->rfind('\n') + 1;  // 0 without a line break: npos + 1
  std::string_view rest = std::string_view(*text).substr(0, whole);
  for (int line = 1; !rest.empty(); ++line) {
    Result<Row> row = parse_row(take_until(rest, '\n'));
    if (!row) {
      Error error = row.error();
      error.location = {path_, line, 0};
      return error;
    }
    rows_.push_back(std::move(*row));
  }
  // The process was killed while it wrote the last line.
  was_cut_ = whole < text->size();
  if (was_cut_ && ::ftruncate(descriptor_, static_cast<off_t>(whole)) != 0)
    return system_error("cannot shorten", errno, path_);
  return Status::ok();
}

Status SweepFolder::append(const std::string& line) {
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error("cannot write", errno, path_);
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  return Status::ok();
}

SweepBook::SweepBook(const Variation& variation, Goal goal, SweepFolder& folder,
                     Interrupts& interrupts, std::function<void(std::size_t)> on_rows)
    : variation_(variation),
      goal_(goal),
      folder_(folder),
      interrupts_(interrupts),
      on_rows_(std::move(on_rows)) {
  for (const Row& row : folder.rows())
    // Failed points are tried again. Later lines win: a point may have failed before it succeeded.
    if (row.outcome != Outcome::failed)
      rows_.insert_or_assign(point_key(row.machine, row.values), row);
}

void SweepBook::ask(const std::vector<PointId>& points) {
  asked_.insert(asked_.end(), points.begin(), points.end());
  std::size_t known = 0;  // of an earlier, interrupted sweep into the same folder
  for (const PointId point : points) known += find(point) != nullptr ? 1U : 0U;
  on_rows_(known);
}

const Row* SweepBook::find(PointId point) const {
  const auto found =
      rows_.find(point_key(variation_.machine_file(point), variation_.values(point)));
  return found == rows_.end() ? nullptr : &found->second;
}

Status SweepBook::add(PointId point, Row row) {
  row.machine = variation_.machine_file(point);
  row.values = variation_.values(point);
  if (const Status ok = folder_.append(row_line(row, fits(row, goal_))); !ok) return ok;
  std::string key = point_key(row.machine, row.values);
  rows_.insert_or_assign(std::move(key), std::move(row));
  on_rows_(1);
  return Status::ok();
}

std::vector<Row> SweepBook::rows() const {
  std::vector<Row> out;
  for (const PointId point : asked_)
    if (const Row* row = find(point)) out.push_back(*row);
  return out;
}

Status compute_plans(const PlanGrid& plans, const std::vector<PointId>& points,
                     ModalityChecks& checks, SweepBook& book) {
  const auto held = book.hold();
  for (const PointId point : points) {
    if (book.interrupted()) return Status::ok();
    if (book.find(point) != nullptr) continue;
    Row row = book.without([&] { return plans.row(point, checks); });
    if (const Status ok = book.add(point, std::move(row)); !ok) return ok;
  }
  return Status::ok();
}

}  // namespace lockstep::sim
