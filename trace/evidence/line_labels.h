// What launchers and containers put in front of the lines that a process writes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trace/ids.h"

namespace lockstep::trace {

// The rank or the host in the label that a launcher puts in front of each line, and the rest of the
// line.
struct LabelledLine {
  Rank rank{kNone};
  std::string_view host;  // a pod, a container, a node; empty where the label names a rank
  std::string_view text;
};

// A label that on a single line could be part of what a process wrote: one only where nearly every
// line of the file has it.
enum class LabelForm : std::uint8_t {
  none,
  rank_in_brackets,  // "[3] text": MPICH's and Intel MPI's mpiexec
  host_and_bar,      // "worker-3  | text": docker compose
  host_and_colon,    // "node01: text": pdsh, clush
};
LabelForm label_form_of(std::string_view bytes);

// In any file: "[1,3]<stderr>:text" of mpirun, "3: text" of `srun --label`, and
// "[pod/worker-3/pytorch] text" of `kubectl logs --prefix`.
std::optional<LabelledLine> parse_label(std::string_view line, LabelForm form = LabelForm::none);

// Not part of what a process wrote: "2025-01-31T12:37:42.149Z " at the start of a line, as
// Kubernetes and Docker write it, "stderr F " behind it, and colours. Docker's own logs hold a line
// in JSON,
// {"log":"step 3\n","stream":"stderr",…}. The text without them; `buffer` holds it if it was
// changed.
std::string_view plain_text(std::string_view line, std::string& buffer);
// The line without such a time in front.
std::string_view after_timestamp(std::string_view line);
// Whether a file begins with such a line of Docker's.
bool is_docker_log(std::string_view bytes);

// A text without colours and other escapes of terminals.
std::string without_escapes(std::string_view text);

// What stands behind PyTorch's prefix: of "[rank1]: ValueError" and "[rank1]:[E709 …" the rest, of
// other lines all.
std::string_view after_rank(std::string_view line);

// The rank whose number stands behind `words` in a text; kNone: they do not occur, or no job has
// it.
Rank rank_behind(std::string_view text, std::string_view words);

// The ranks in "{3, 4}", "[3, 4]" or "3, 4]"; at most as many as a job has.
std::vector<Rank> listed_ranks(std::string_view list);

// "0-2,5" up to the first other character, as SLURM lists tasks. At most as many ranks as a person
// reads.
std::vector<Rank> tasks_in(std::string_view list);

// Labels of any other kind, as "(Worker pid=12) " of Ray: what stands before the first line of a
// traceback stands before its other lines, too.
class TracebackLabels {
 public:
  static constexpr std::size_t kLongest = 160;
  // Remembers what stands before `traceback` in the line. Where that is nothing: nothing to do.
  void learn(std::string_view line, std::size_t traceback);
  void add(std::string_view label);
  void remove(std::string_view label);  // which turned out to be none
  // The known label that begins the line; empty where none does, as for most lines.
  std::string_view of(std::string_view line) const;

 private:
  std::set<std::string, std::less<>> labels_;
};

}  // namespace lockstep::trace
