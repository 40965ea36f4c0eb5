// The folder of a sweep: sweep.json says what it is a sweep of, results.jsonl has a line for each
// point that was tried, written as it comes. docs/sweep.md has both formats.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/sweep/row.h"

namespace lockstep {

// What the results of a folder hold for. Other keys and values may be varied another time; not so
// what is here.
struct SweepIdentity {
  std::string version;                          // of this program
  std::string scenario;                         // SHA-256 of the file
  std::map<std::string, std::string> machines;  // SHA-256, by file; others may come in later
  std::optional<int> steps;
  std::optional<bool> on_meta;
};

class SweepFolder {
 public:
  // Makes the folder where it is not there, and locks it as long as this object lives. A last line
  // that was cut off is taken away.
  // Errors: a folder that is not empty and no sweep's; a sweep of something else; another sweep
  // that runs in it; a line that is no row, with its number; what the system refuses.
  static Result<SweepFolder> open(const std::string& path, const SweepIdentity& identity);

  SweepFolder(SweepFolder&& other) noexcept;
  SweepFolder& operator=(SweepFolder&&) = delete;
  ~SweepFolder();

  const std::vector<sweep::Row>& rows() const { return rows_; }  // those that were there
  bool was_cut() const { return was_cut_; }
  // Written at once. Errors: no space.
  Status append(const std::string& line);

 private:
  SweepFolder(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  Status read_rows();

  std::string path_;  // of results.jsonl
  int descriptor_;
  std::vector<sweep::Row> rows_;
  bool was_cut_ = false;
};

}  // namespace lockstep
