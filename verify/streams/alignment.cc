#include "verify/streams/alignment.h"

#include <algorithm>

#include "verify/streams/batches.h"
#include "verify/streams/programs.h"

namespace lockstep::verify {

Alignment::Alignment(const trace::Run& run, const std::vector<GroupStreams>& groups,
                     std::size_t group, const ReplayResult& where, const Modalities& modalities,
                     Agreement& agreement, EditBudget& budget)
    : run_(run),
      groups_(groups),
      group_index_(group),
      where_(where),
      modalities_(modalities),
      agreement_(agreement) {
  const GroupStreams& mine = groups[group];
  for (std::size_t c = 0; c < mine.classes.size(); ++c) {
    sequences_.emplace_back(run, mine.streams[mine.classes[c].streams[0]], agreement);
    cursors_.push_back({c, 0, 0});
  }
  deviated_.assign(mine.classes.size(), false);
  astray_.assign(mine.classes.size(), false);
  steps_comparable_ = compare_steps();
  judges_steps_ = steps_comparable_ && do_steps_matter();
  edits_.emplace(run.tables, agreement, steps_comparable_, budget);
}

// Step numbers are labels that each program chooses. They are comparable where the ranks' first
// or last labels are equal. A rank that left out its first step has steps 1..9 against 0..9: the
// last labels agree. A rank that counts from 1 has 1..10 against 0..9: neither end agrees.
bool Alignment::compare_steps() const {
  std::optional<std::pair<std::int32_t, std::int32_t>> reference;
  for (const StreamClass& c : group().classes) {
    const Stream& stream = group().streams[c.streams[0]];
    if (stream.calls.empty()) continue;
    const std::vector<trace::Call>& calls = run_.ranks[stream.rank_index].calls;
    const std::pair ends(calls[stream.calls.front()].step, calls[stream.calls.back()].step);
    if (!reference) reference = ends;
    if (ends.first != reference->first && ends.second != reference->second) return false;
  }
  return true;
}

// A differing step label counts as a difference only with further evidence that the ranks are
// out of step: streams of unequal length, or ranks that wait in this group. Without it, a rank
// that only labels a call differently (a barrier before instead of after the step counter) would
// be reported.
bool Alignment::do_steps_matter() const {
  const auto length = [&](const StreamClass& c) {
    return group().streams[c.streams[0]].calls.size();
  };
  const bool unequal =
      std::any_of(group().classes.begin(), group().classes.end(),
                  [&](const StreamClass& c) { return length(c) != length(group().classes[0]); });
  return unequal || std::any_of(where_.wait_points.begin(), where_.wait_points.end(),
                                [&](const WaitPoint& p) { return p.group == group_index_; });
}

void Alignment::drop_ended() {
  std::erase_if(cursors_, [&](const Cursor& c) {
    // A held cursor stays: the calls that it sits out are already reported as missing.
    const bool ended = c.held == 0 && c.next >= sequences_[c.class_index].size();
    if (ended) ended_.push_back(c.class_index);
    return ended;
  });
}

std::vector<Party> Alignment::split() {
  std::vector<Party> parties;
  for (std::size_t i = 0; i < cursors_.size(); ++i) {
    if (cursors_[i].held > 0) continue;
    const Token mine = next_token(i);
    // Comparing with the party's first member suffices, although unknown fields make agreement
    // not quite transitive: a call with unknown fields joins the first party that it fits.
    const auto party = std::find_if(parties.begin(), parties.end(),
                                    [&](const auto& p) { return match(next_token(p[0]), mine); });
    if (party != parties.end()) {
      party->push_back(i);
    } else {
      parties.push_back({i});
    }
  }
  return parties;
}

void Alignment::apply(const Edit& edit, std::size_t deviant) {
  Cursor& c = cursors_[deviant];
  switch (edit.kind) {
    case EditKind::missing:
      c.held = edit.count;
      break;
    case EditKind::extra:
      // Onto the call that corresponds to the reference's current one; advance() passes both.
      c.next += edit.count;
      break;
    case EditKind::swapped:
      // Reference: a b. Deviant: b a. It passes both of its calls now, and then waits while the
      // reference passes its two.
      c.next += edit.count;
      c.held = edit.count;
      break;
    case EditKind::replaced:
    case EditKind::identity:
      break;  // one call for one call: advance() passes both
  }
}

void Alignment::advance() {
  for (Cursor& c : cursors_) {
    if (c.held > 0) {
      --c.held;
    } else {
      ++c.next;
    }
  }
}

void Alignment::mark(std::size_t cursor, bool has_deviated, bool is_astray) {
  deviated_[class_of(cursor)] = has_deviated;
  astray_[class_of(cursor)] = is_astray;
}

void Alignment::come_back(const Party& party) {
  for (const std::size_t cursor : party) astray_[cursors_[cursor].class_index] = false;
}

std::pair<std::size_t, std::size_t> Alignment::weight(const Party& party) const {
  std::size_t steady = 0, ranks = 0;
  for (const std::size_t cursor : party) {
    const std::size_t c = cursors_[cursor].class_index;
    ranks += group().classes[c].streams.size();
    if (!astray_[c]) steady += group().classes[c].streams.size();
  }
  return {steady, ranks};
}

std::size_t Alignment::longest(const Party& party) const {
  return *std::max_element(party.begin(), party.end(), [&](std::size_t a, std::size_t b) {
    return calls_left(a) < calls_left(b);
  });
}

std::vector<std::uint32_t> Alignment::ranks(const Party& party) const {
  std::vector<std::uint32_t> out;
  for (const std::size_t cursor : party) {
    for (const std::uint32_t s : group().classes[cursors_[cursor].class_index].streams) {
      out.push_back(group().streams[s].rank_index);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::int32_t Alignment::step_of(std::size_t reference, std::size_t deviant) const {
  const std::int32_t a = next_token(reference).step;
  const std::int32_t b = next_token(deviant).step;
  return a == trace::kNone || b == trace::kNone ? std::max(a, b) : std::min(a, b);
}

BatchNumber Alignment::batch_of(std::size_t reference, std::size_t deviant) const {
  const std::int32_t step = step_of(reference, deviant);
  const BatchNumber a = batch_of_next(reference);
  const BatchNumber b = batch_of_next(deviant);
  if (a.step != b.step) return a.step == step ? a : b.step == step ? b : BatchNumber{step};
  return std::min(a, b);
}

BatchNumber Alignment::batch_of_next(std::size_t cursor) const {
  return modalities_.batch_of(rank(cursor), stream(cursor).calls[cursors_[cursor].next]);
}

bool Alignment::lacks_modality(std::size_t deviant, std::size_t reference) const {
  return do_batches_explain(run_, modalities_, agreement_, rank(deviant), next_call(reference),
                            batch_of(reference, deviant));
}

bool Alignment::do_batches_tell(const Party& few, const Party& most) const {
  const BatchNumber batch = batch_of(few[0], most[0]);
  const std::vector<std::uint32_t> full = ranks(few);
  const std::vector<std::uint32_t> lacking = ranks(most);
  // Their batches differ alike, so one of them is asked about the call.
  return do_batches_explain(run_, modalities_, agreement_, lacking[0], next_call(few[0]), batch) &&
         std::all_of(
             lacking.begin(), lacking.end(),
             [&](std::uint32_t r) { return !modalities_.lacking(r, full[0], batch).empty(); }) &&
         std::all_of(full.begin(), full.end(), [&](std::uint32_t r) {
           return modalities_.lacking(r, lacking[0], batch).empty();
         });
}

bool Alignment::skip_explains(std::size_t a, std::size_t b) {
  const Token x = next_token(a);
  const Token y = next_token(b);
  const unsigned form = agreement_.differences(x.signature, y.signature);
  // FSDP gathers parameters and later reduces their gradients: two calls with the same parameters.
  // So two operations are two calls, if both were made before.
  const bool are_two_operations =
      (form & kDifferentOp) != 0 && was_made_before(a) && was_made_before(b);
  const bool same_parameters = x.what == y.what && x.what.value != 0;
  if (same_parameters && !are_two_operations) return false;
  return x.what != y.what || (form & (kDifferentOp | kDifferentSize)) != 0;
}

Edit Alignment::find_edit(std::size_t reference, std::size_t deviant) {
  const Cursor& ref = cursors_[reference];
  const Cursor& dev = cursors_[deviant];
  // Where both came equally far, neither lacks a call at the end.
  const bool level = are_level(reference, deviant);
  const Edit edit =
      edits_->find({sequences_[ref.class_index], ref.next, level || ended_cleanly(reference)},
                   {sequences_[dev.class_index], dev.next, level || ended_cleanly(deviant)});
  // The group's calls alone do not show what the rank did between them.
  const bool left_out = edit.kind == EditKind::swapped ? come_rounds_apart(reference, deviant)
                                                       : goes_on_without(reference, deviant);
  return left_out && edit.kind != EditKind::missing ? Edit{EditKind::missing, 1} : edit;
}

bool Alignment::ended_cleanly(std::size_t cursor) const {
  return where_.positions[rank(cursor)].state == Position::State::finished;
}

bool Alignment::knows_its_past(std::uint32_t rank) const {
  return holds_its_past(run_.ranks[rank]);
}

// Whether the two issued equally many calls and the last ones completed: a dump of a job that goes
// on, or that hangs in another group. Had one left out a call, it would lack one at the end.
bool Alignment::are_level(std::size_t a, std::size_t b) const {
  const auto has_completed = [&](const Stream& stream) {
    return run_.ranks[stream.rank_index].calls[stream.calls.back()].has(trace::kCompleted);
  };
  return stream(a).calls.size() == stream(b).calls.size() && has_completed(stream(a)) &&
         has_completed(stream(b));
}

// Whether the programs diverge at the reference's next call in this group, and the other rank goes
// on to calls of other groups without it. Then it left the call out, whatever its later calls in
// this group look like:
//
//   rank 0   x y z(g) | x y z(g)
//   rank 1   x y z(g) | x y | x y z(g)      its next z is that of the next round
bool Alignment::goes_on_without(std::size_t reference, std::size_t other) const {
  const auto diverged = diverged_between(position(reference), position(other));
  return diverged && next_call(reference).call == *diverged && next_call(other).call != *diverged;
}

// Whether the next two calls are of different rounds in one of the programs and not in the other,
// where they come in the opposite order. Then no two calls changed places: the other rank left
// out the first one and issues that of its next round.
//
//   rank 0   x y a b | x y a b
//   rank 1   x y a b | x y b | x y a b      b and then a, with a round between them
bool Alignment::come_rounds_apart(std::size_t reference, std::size_t other) const {
  const auto distance = [&](std::size_t cursor) {
    const auto call =
        stream(cursor).calls.begin() + static_cast<std::ptrdiff_t>(cursors_[cursor].next);
    return call[1] - call[0];
  };
  const std::uint32_t a = distance(reference);
  const std::uint32_t b = distance(other);
  return std::max(a, b) > 2 * std::min(a, b);
}

std::optional<std::uint32_t> Alignment::diverged_between(const StreamPosition& a,
                                                         const StreamPosition& b) const {
  const auto diverged = common_start(run_, agreement_, a.stream.rank_index, b.stream.rank_index);
  const auto between = [&](const StreamPosition& p) {
    return *diverged <= p.call().call && (p.next == 0 || *diverged > p.stream.calls[p.next - 1]);
  };
  return diverged && between(a) && between(b) ? diverged : std::nullopt;
}

}  // namespace lockstep::verify
