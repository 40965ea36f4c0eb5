// LineParser: parses a text line by line, each as one JSON object. Internal to the text reader.
//
// Lines are parsed one by one rather than in bulk, so a line that is not JSON affects no other
// line.
#pragma once

#include <simdjson.h>

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/run.h"

namespace lockstep::trace {

class LineParser {
 public:
  // `text` must outlive the parser. A byte order mark at its start is passed over.
  explicit LineParser(std::string_view text);

  // Goes to the next line that is not blank; false at the end of the text.
  bool next();

  int number() const { return number_; }  // of the current line, 1-based; stays at INT32_MAX

  // The keys of the current line, valid until the next call. On failure `problem` says why.
  bool parse(simdjson::dom::object& object, std::string& problem);

 private:
  // The current line, followed by as many readable bytes as simdjson wants.
  const char* with_padding();
  bool make_room();
  std::string why(simdjson::error_code status) const;

  std::string_view rest_;  // what follows the current line
  std::string_view line_;
  bool terminated_ = false;  // the line ends with a line feed
  int number_ = 0;
  std::string last_lines_;
  simdjson::dom::parser parser_;
};

// TextFields: the keys of one line of a text trace, with types and ranges checked as they are read.
// Internal to the text reader.
//
//   fields.load(object);
//   call.id = fields.integer(Key::id, 0).value_or(0);
//   call.at = fields.name(Key::at);
//   fields.require(Key::id);
//   if (!fields.problem().empty()) …      // the first thing that was wrong, or nothing
//
// An absent key, or null, is "not recorded" and no problem unless it is required. Keys that the
// format does not have are passed over.

// Every key that the format has; lines.cc spells them in the same order.
enum class Key : std::uint8_t {
  // kinds of lines
  header,
  group,
  ev,
  end,
  // header and group
  rank,
  world_size,
  backend,
  host,
  gpu,
  pid,
  program,
  dropped,
  semantics,
  ranks,
  desc,
  // calls and their events
  id,
  g,
  op,
  t,
  in,
  out,
  dtype,
  redop,
  root,
  peer,
  ptag,
  splits_in,
  splits_out,
  async,
  coalesced,
  stream,
  what,
  at,
  step,
  tag,
  hash,
  sketch,
  count,
  mode,
  from,
  fromtag,
  // other events
  n,
  loss,
  samples,
  name,
  norm,
  shape,
  kind,
  when,
  sharded,
  indices,
  has,
  dur,
  modality,
  after,
  thread,
  // what a copy of another format says in addition
  converted,
  snapshot,
  sized,
  created,
  first_number,
  conflicts,
  damaged,
  damage,
  progress,
  enqueued,
  started,
  completed,
  seq,
  open_ended,
  damaged_at_end,
  inconclusive,
  ends_of_waits,
  longest_open,
  longest_completed,
  unrecorded,
};
inline constexpr std::size_t kKeys = static_cast<std::size_t>(Key::unrecorded) + 1;

class TextFields {
 public:
  explicit TextFields(Tables& tables) : tables_(tables) {}

  // Takes the keys of one line; valid until its parser parses the next.
  void load(simdjson::dom::object object);

  // What kind of line it is: the first of the kinds in Key that it has.
  std::optional<Key> line_kind() const { return line_kind_; }

  // What was wrong with the keys read so far: "\"step\" is not an integer". Empty: nothing.
  const std::string& problem() const { return problem_; }

  bool has(Key key) const { return present_[static_cast<std::size_t>(key)]; }
  void require(Key key);

  // Integers within [low, high]. A number like 1e6 counts as one.
  std::optional<std::int64_t> integer(Key key, std::int64_t low = INT64_MIN,
                                      std::int64_t high = INT64_MAX);
  std::int32_t int32(Key key, std::int32_t absent, std::int32_t low, std::int32_t high = INT32_MAX);
  std::optional<double> number(Key key);
  bool boolean(Key key, bool absent = false);
  // Valid as long as the line.
  std::optional<std::string_view> text(Key key);
  std::optional<std::uint64_t> hex64(Key key);
  std::vector<std::int64_t> integers(Key key, std::int64_t low, std::int64_t high = INT64_MAX);
  // A list of ranks, in which a list [first, last] or [first, last, step] is a range of them.
  // Nothing where it is none, which is a problem then. `high`: the highest rank.
  std::optional<std::vector<RankRange>> rank_ranges(Key key, std::int32_t high);
  std::vector<double> numbers(Key key);

  // Interned; 0 where absent.
  StringId name(Key key);
  StringId name_or_number(Key key);  // a queue may be called "compute" or 7
  GroupId group_name(Key key);
  NameListId names(Key key, bool sorted = false);  // a single name counts as a list of one
  IntListId shapes(Key key);                       // a list of shapes, flattened
  IntListId sizes(Key key);                        // a list of integers >= 0

  // Notes a problem, unless there is one already.
  void complain(Key key, std::string_view what);

 private:
  const simdjson::dom::element* find(Key key) const {
    return has(key) ? &values_[static_cast<std::size_t>(key)] : nullptr;
  }
  // The elements of a list; complains and gives nothing when it is none.
  std::optional<simdjson::dom::array> list(Key key);
  StringId intern(std::string_view text);
  bool append_sizes(Key key, simdjson::dom::element list);

  Tables& tables_;
  std::array<simdjson::dom::element, kKeys> values_;
  std::bitset<kKeys> present_;
  std::optional<Key> line_kind_;
  std::string problem_;
  // Kept between lines, so that looking up what is interned already allocates nothing.
  std::string scratch_text_;
  IntList scratch_ints_;
  std::vector<StringId> scratch_names_;
};

}  // namespace lockstep::trace
