// What ranks do in stretches of their traces, as the checker of certificates reads it: a second
// reading of the traces, which has nothing in common with sequence_reader.h on purpose.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "trace/derivation.h"
#include "trace/run.h"

namespace lockstep::verify::checked {

// A name as one word of a certificate.
std::string word(const std::string& text);

struct Line {
  char kind = 'i';  // i: issue, b: block, g: block behind the batch, w: wait
  std::uint32_t channel = 0;
  std::uint32_t place = 0;
  std::uint32_t call = 0, cut = 0;  // of calls: into PartTable::texts
};
struct Part {
  std::string digest;
  std::vector<Line> lines;
  // By channel: how many calls, their digest, their splits.
  struct Projection {
    std::uint32_t size = 0;
    std::string digest;
    std::vector<std::uint32_t> cuts;  // into PartTable::texts
    bool even = true;                 // no call is cut unevenly
  };
  std::map<std::uint32_t, Projection> projections;
};
struct Channel {
  std::string name;
  bool message = false;
  std::vector<std::int32_t> members;  // in group order
  std::uint32_t longest = 0;          // calls in any one part
  bool matters() const { return message || members.size() > 1; }
};

struct PartTable {
  bool nccl = false;
  std::map<std::string, trace::RankList> groups;  // as declared, by name
  std::vector<Channel> channels;
  std::unordered_map<std::string, std::uint32_t> channel_named;
  std::vector<std::string> texts;  // what all must agree on of a call; "in out", its splits
  std::vector<Part> all;           // the different ones
};

// Events [begin, end) of a trace.
struct Stretch {
  std::uint32_t begin = 0, end = 0;
  std::int32_t without_step = INT32_MIN;  // calls of this step, and their waits, are left out
  bool all_block = false;                 // every call blocks where it stands
};

class PartReader {
 public:
  explicit PartReader(std::int32_t world_size) : world_size_(world_size) {}

  // Of all runs, before any is read: groups and backends.
  void declare(const trace::Run& run);
  // Whose traces come next.
  void enter(const trace::Run& run);
  // The id of what the rank does there; into PartTable::all. O(events).
  std::uint32_t read(const trace::RankTrace& trace, const Stretch& stretch);

  // The first reason why nothing can be certified: MPI, messages without their other side, groups
  // whose members are not known or in dispute, calls in a group of others.
  void refuse(const trace::RankTrace& trace, const std::string& why);
  const std::optional<Error>& error() const { return error_; }
  const PartTable& table() const { return table_; }
  PartTable take() && { return std::move(table_); }

 private:
  // Group, peer, tag and whether it sends.
  using Where = std::tuple<std::uint32_t, std::int32_t, std::int32_t, bool>;

  std::uint32_t channel(const trace::RankTrace& trace, const trace::Call& call, trace::Op op);
  std::uint32_t text(std::string words);
  std::uint32_t call_text(const trace::Call& call);
  std::uint32_t cut_text(const trace::Call& call);
  std::uint32_t intern(std::vector<Line> lines);

  const std::int32_t world_size_;
  PartTable table_;
  std::optional<Error> error_;
  const trace::Run* run_ = nullptr;
  // Of the run at hand; `where_` of its rank at hand.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> calls_;
  std::map<std::uint32_t, std::uint32_t> cuts_;
  std::map<Where, std::uint32_t> where_;
  std::int32_t rank_ = trace::kNone;
  std::unordered_map<std::string, std::uint32_t> texts_, parts_;
};

// A derivation's traces in parts, as the checker of certificates cuts them.

struct ProgramParts {
  // Of a history and a rank: the start, step 0, step 1 where calls of step 0 come among its own,
  // the end, then a part for each condition of later steps.
  enum : std::size_t { kStart, kFirst, kSecond, kEnd, kFirstCondition };
  static constexpr std::uint32_t kMissing = UINT32_MAX;

  PartTable table;
  std::vector<std::vector<std::vector<std::uint32_t>>> of;  // into table.all
  bool second_alone = false;                                // some kSecond is not missing
};

// Errors: a trace that does not end well, calls that belong to no step, a step that is not what
// another one under its condition was, and those of PartReader.
Result<ProgramParts> read_program(const trace::Derivation& derivation);

}  // namespace lockstep::verify::checked
