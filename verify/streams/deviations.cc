#include "verify/streams/deviations.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "verify/streams/alignment.h"
#include "verify/streams/programs.h"
#include "verify/streams/reference.h"
#include "verify/streams/step_counts.h"

namespace lockstep::verify {

namespace {

// After 64 distinct deviations in one group nobody reads on, and the streams have little in common.
constexpr std::size_t kMaxDeviations = 64;

class Walker {
 public:
  Walker(Alignment& alignment, const ReplayResult& where, const EditBudget& budget)
      : at_(alignment), where_(where), budget_(budget) {}

  // Each round looks at one call of the reference: where the classes disagree, resolve() records
  // the edit and moves the deviating cursors so that the next round compares matching calls again.
  std::vector<Deviation> walk() {
    while (found_.size() < kMaxDeviations && (found_.empty() || !budget_.is_spent())) {
      at_.drop_ended();
      // The last class left has nothing to be compared with. finish_ended() looks at its rest.
      if (at_.cursors().size() < 2) break;
      const std::vector<Party> parties = at_.split();
      if (parties.size() > 1) resolve(parties);
      if (parties.size() == 1) at_.come_back(parties[0]);
      at_.advance();
    }
    finish_ended();
    return std::move(found_);
  }

 private:
  // Records how each class outside the reference party deviates, and moves its cursor past the
  // difference.
  void resolve(const std::vector<Party>& parties) {
    if (resolve_as_added_before(parties)) return;
    const Reference chosen = choose_reference(at_, parties, /*is_first=*/found_.empty());
    const std::size_t reference = at_.longest(parties[chosen.party]);
    const std::vector<std::uint32_t> reference_ranks = at_.ranks(parties[chosen.party]);
    const auto edit_of = [&](std::size_t cursor) {
      const Edit edit = at_.find_edit(reference, cursor);
      // Ranks that hang in their next call have too few calls left to align.
      return chosen.left_out_by_most && edit.kind == EditKind::replaced ? Edit{EditKind::missing, 1}
                                                                        : edit;
    };
    for (std::size_t p = 0; p < parties.size(); ++p) {
      if (p == chosen.party) continue;
      // All members issue the same call here. If a member was killed or hung soon after, its
      // stream is too short to show how it deviates: use the member with the longest stream.
      const std::size_t clearest = at_.longest(parties[p]);
      const Edit of_party = edit_of(clearest);
      record(of_party, reference, clearest, reference_ranks, chosen.singled_out);
      for (const std::size_t cursor : parties[p]) {
        const Edit edit = cursor == clearest ? of_party : edit_of(cursor);
        const bool unclear =
            edit.kind == EditKind::replaced ||
            (!at_.ended_cleanly(cursor) && at_.calls_left(cursor) < at_.calls_left(clearest));
        if (cursor != clearest)
          record(unclear ? of_party : edit, reference, cursor, reference_ranks, chosen.singled_out);
        at_.apply(edit, cursor);
        at_.mark(cursor, chosen.singled_out, chosen.singled_out && edit.kind == EditKind::replaced);
      }
    }
    at_.come_back(parties[chosen.party]);
  }

  // Calls from lines of the program that the others never call from, and which paired with other
  // calls of the same form: a validation on rank 0 alone gathers as the next step of the others
  // does, and what differs in the end is a call further on. Names of parameters would show where it
  // began; without them the lines do, where all calls after the additions are the reference's, line
  // by line.
  //
  //   reference   g@9 g@9 r@9 | g@9 g@9 r@9           waits in r
  //   deviant     g@9 g@9 r@9 | g@5 g@5 g@9           waits in g: two additions
  struct Addition {
    std::size_t index = 0;  // in both streams
    std::size_t count = 0;
  };

  std::optional<Addition> added_before(std::size_t reference, std::size_t deviant) {
    constexpr std::size_t kMaxPlaces = 16;  // where lines may diverge for another reason: a root's
    const std::size_t end = at_.cursors()[reference].next;
    Sequence& ref = at_.sequence(reference);
    Sequence& dev = at_.sequence(deviant);
    std::set<std::uint32_t> lines;
    for (std::size_t i = 0; i < ref.size(); ++i) lines.insert(ref.location(i).value);
    const auto is_new = [&](std::size_t i) {
      return dev.location(i).value != 0 && dev.token(i).what.value == 0 &&
             !lines.contains(dev.location(i).value);
    };
    const auto same_line = [&](std::size_t r, std::size_t d) {
      return ref.location(r) == dev.location(d) && at_.match(ref.token(r), dev.token(d));
    };
    std::size_t places = 0;
    for (std::size_t i = 0; i < end && places < kMaxPlaces; ++i) {
      if (!is_new(i)) continue;
      ++places;
      Addition out{i, 1};
      while (i + out.count < dev.size() && is_new(i + out.count)) ++out.count;
      std::size_t after = 0;
      while (i + after < ref.size() && i + out.count + after < dev.size() &&
             same_line(i + after, i + out.count + after))
        ++after;
      const bool to_the_end = i + after == ref.size() || i + out.count + after == dev.size();
      if (after > 0 && to_the_end) return out;
      i += out.count - 1;
    }
    return std::nullopt;
  }

  bool resolve_as_added_before(const std::vector<Party>& parties) {
    if (!found_.empty() || parties.size() != 2) return false;
    for (const std::size_t few : {0U, 1U}) {
      const Party& others = parties[1 - few];
      const std::size_t reference = at_.longest(others);
      const std::size_t deviant = at_.longest(parties[few]);
      // Nor where the batches explain it: the others left out the calls of a branch.
      if (at_.weight(parties[few]) > at_.weight(others) ||
          at_.do_batches_tell(parties[few], others))
        continue;
      const auto added = added_before(reference, deviant);
      if (!added) continue;
      const Edit edit{EditKind::extra, added->count};
      const std::size_t back = at_.cursors()[reference].next - added->index;
      for (const std::size_t cursor : parties[few]) {
        record(edit, reference, cursor, at_.ranks(others), /*singled_out=*/true, back);
        at_.apply(edit, cursor);
        at_.mark(cursor, /*has_deviated=*/true, at_.is_astray(cursor));
      }
      return true;
    }
    return false;
  }

  // `back`: how many calls before the present ones the deviation is.
  void record(const Edit& edit, std::size_t reference, std::size_t deviant,
              const std::vector<std::uint32_t>& reference_ranks, bool singled_out,
              std::size_t back = 0) {
    const std::size_t in_reference = at_.cursors()[reference].next - back;
    const std::size_t in_deviant = at_.cursors()[deviant].next - back;
    Deviation d;
    d.kind = edit.kind;
    d.count = static_cast<std::uint32_t>(edit.count);
    d.group = at_.group_index();
    d.seq = at_.group().first_seq + in_reference;
    const BatchNumber batch = at_.batch_of(reference, deviant);
    d.step = batch.step;
    d.micro_batch = batch.micro;
    d.singled_out = singled_out;
    d.reference = reference_ranks;
    d.deviants = at_.ranks({deviant});
    d.expected = {at_.rank(reference), at_.stream(reference).calls[in_reference]};
    d.got = {at_.rank(deviant), at_.stream(deviant).calls[in_deviant]};
    d.differences =
        at_.agreement().differences(at_.sequence(reference).token(in_reference).signature,
                                    at_.sequence(deviant).token(in_deviant).signature);
    merge(std::move(d));
  }

  // Adds a deviation, or counts it to a known one of the same kind and differences: other classes
  // that deviate at the same call become its deviants, and the same ranks at a later, equal call
  // (the same skip in every step) are a repetition.
  void merge(Deviation d) {
    const trace::Call& expected = at_.run().ranks[d.expected.rank].calls[d.expected.call];
    for (Deviation& known : found_) {
      const bool same_way = known.kind == d.kind && known.differences == d.differences;
      if (!same_way) continue;
      if (known.seq == d.seq) {
        if (d.kind == EditKind::replaced) add_replacement(known, d);
        known.deviants.insert(known.deviants.end(), d.deviants.begin(), d.deviants.end());
        std::sort(known.deviants.begin(), known.deviants.end());
        known.deviants.erase(std::unique(known.deviants.begin(), known.deviants.end()),
                             known.deviants.end());
        return;
      }
      const bool same_ranks = std::includes(known.deviants.begin(), known.deviants.end(),
                                            d.deviants.begin(), d.deviants.end());
      const trace::Call& before = at_.run().ranks[known.expected.rank].calls[known.expected.call];
      if (same_ranks && before.signature == expected.signature && before.what == expected.what) {
        ++known.repeats;
        return;
      }
    }
    found_.push_back(std::move(d));
  }

  // Keeps what the deviants of both issued, where it is not the same.
  void add_replacement(Deviation& known, const Deviation& d) const {
    const auto signature = [&](CallRef ref) {
      return at_.run().ranks[ref.rank].calls[ref.call].signature;
    };
    if (known.got.call == kNoCall || d.got.call == kNoCall) return;
    if (known.replacements.empty()) {
      if (signature(known.got) == signature(d.got)) return;
      known.replacements.push_back({known.got, known.deviants});
    }
    for (Deviation::Replacement& one : known.replacements) {
      if (signature(one.got) != signature(d.got)) continue;
      one.ranks.insert(one.ranks.end(), d.deviants.begin(), d.deviants.end());
      std::sort(one.ranks.begin(), one.ranks.end());
      return;
    }
    known.replacements.push_back({d.got, d.deviants});
  }

  // Reports calls that one class has left when the others finished without them. Only asynchronous
  // calls that nobody waited for get here: all ranks finished although the calls have no partners.
  void finish_ended() {
    if (at_.cursors().empty() || at_.ended_classes().empty() || found_.size() >= kMaxDeviations)
      return;
    const Alignment::Cursor& c = at_.cursors()[0];  // walk() ended with at most one
    if (c.held > 0 || at_.calls_left(0) == 0) return;
    const auto left_over = at_.ranks({0});
    std::vector<std::uint32_t> finished;
    for (const std::size_t e : at_.ended_classes()) {
      for (const std::uint32_t s : at_.group().classes[e].streams) {
        finished.push_back(at_.group().streams[s].rank_index);
      }
    }
    std::sort(finished.begin(), finished.end());
    const auto done = [&](std::uint32_t r) {
      return where_.positions[r].state == Position::State::finished &&
             where_.positions[r].waiting_in() == kNoCall;
    };
    if (!std::all_of(finished.begin(), finished.end(), done) ||
        !std::all_of(left_over.begin(), left_over.end(), done)) {
      return;  // somebody waits, died or raised: the wait-for graph explains it better
    }
    // The smaller side deviates, unless the larger one broke with its past. With equal sides the
    // calls are reported as missing, and nobody is singled out.
    Deviation d;
    const CallRef call = at_.next_call(0);
    const auto most =
        most_broke_with_the_past(at_.run(), at_.agreement(), left_over[0], finished[0]);
    const bool left_out =
        (most && most->deviant == finished[0]) ||
        do_counts_tell(at_.run(), at_.agreement(), left_over[0], finished[0], call);
    const bool extra = left_over.size() < finished.size() && !left_out;
    d.kind = extra ? EditKind::extra : EditKind::missing;
    d.singled_out = left_over.size() != finished.size();
    d.deviants = extra ? left_over : finished;
    d.reference = extra ? finished : left_over;
    d.group = at_.group_index();
    d.seq = at_.group().first_seq + c.next;
    d.step = at_.next_token(0).step;
    d.count = static_cast<std::uint32_t>(at_.calls_left(0));
    (extra ? d.got : d.expected) = call;
    (extra ? d.expected : d.got).rank = d.reference[0];
    if (!extra) d.got.rank = d.deviants[0];
    found_.push_back(std::move(d));
  }

  Alignment& at_;
  const ReplayResult& where_;
  const EditBudget& budget_;
  std::vector<Deviation> found_;
};

}  // namespace

void turn_around(Deviation& deviation) {
  if (deviation.kind == EditKind::missing) {
    deviation.kind = EditKind::extra;
  } else if (deviation.kind == EditKind::extra) {
    deviation.kind = EditKind::missing;
  }
  std::swap(deviation.deviants, deviation.reference);
  std::swap(deviation.got, deviation.expected);
  deviation.replacements.clear();  // they are those of the former deviants
}

std::vector<Deviation> find_deviations(const trace::Run& run,
                                       const std::vector<GroupStreams>& groups, std::size_t group,
                                       const ReplayResult& where, const Modalities& modalities,
                                       Agreement& agreement, EditBudget& budget) {
  // One class: all members issued the same calls.
  if (groups[group].classes.size() < 2 || !groups[group].comparable) return {};
  Alignment alignment(run, groups, group, where, modalities, agreement, budget);
  return Walker(alignment, where, budget).walk();
}

}  // namespace lockstep::verify
