#include "trace/other_jobs.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/folded_ranges.h"
#include "base/text.h"
#include "trace/formats/format.h"

namespace lockstep::trace {

namespace fs = std::filesystem;

namespace {

// When the trace begins and ends by its events; kNoTime where these have no times.
std::pair<Nanos, Nanos> times_of(const RankTrace& trace) {
  std::pair<Nanos, Nanos> out{kNoTime, kNoTime};
  for (const Event& event : trace.events) {
    if (event.time == kNoTime) continue;
    out.first = out.first == kNoTime ? event.time : std::min(out.first, event.time);
    out.second = std::max(out.second, event.time);
  }
  return out;
}

// Recordings of which each file holds one rank. Logs are spread over several files of a rank.
bool may_be_of_another_job(const Piece& piece) {
  return piece.traces.size() == 1 && piece.format != nullptr && !piece.format->is_log &&
         piece.stands_for == nullptr;
}

// A file's name without the number of its rank: "job7_rank_#.json" of job7_rank_3.json.
std::string name_without_rank(const Piece& piece) {
  const fs::path path(piece.name);
  std::string name = path.filename().string();
  const std::int32_t rank = piece.traces[0].rank.value;
  std::optional<std::pair<std::size_t, std::size_t>> found;
  for (std::size_t begin = 0; begin < name.size(); ++begin) {
    if (!is_digit(name[begin])) continue;
    std::size_t end = begin;
    while (end < name.size() && is_digit(name[end])) ++end;
    std::int32_t value = -1;
    std::from_chars(name.data() + begin, name.data() + end, value);
    // The number after "rank" is it; otherwise the last one (rank_in_name).
    const bool after_rank = begin >= 4 && name.substr(0, begin).find("rank") != std::string::npos;
    if (value == rank) found = {begin, end};
    if (value == rank && after_rank) break;
    begin = end;
  }
  if (found) name.replace(found->first, found->second - found->first, "#");
  return (path.parent_path() / name).string();
}

// The files of one job, as indexes into the pieces.
using Job = std::vector<std::size_t>;

bool holds_a_rank_twice(const std::vector<Piece>& pieces, const Job& job) {
  std::set<Rank> ranks;
  return std::any_of(job.begin(), job.end(),
                     [&](std::size_t p) { return !ranks.insert(pieces[p].traces[0].rank).second; });
}

std::vector<Job> by_name(const std::vector<Piece>& pieces, const Job& all,
                         const std::function<std::string(const Piece&)>& name_of) {
  std::map<std::string, Job> jobs;
  for (const std::size_t p : all) jobs[name_of(pieces[p])].push_back(p);
  std::vector<Job> out;
  out.reserve(jobs.size());
  for (auto& [name, job] : jobs) out.push_back(std::move(job));
  return out;
}

// Files whose times overlap, all clocks being those of the day.
std::vector<Job> by_time(const std::vector<Piece>& pieces, Job all) {
  const auto begin_of = [&](std::size_t p) { return times_of(pieces[p].traces[0]).first; };
  std::stable_sort(all.begin(), all.end(),
                   [&](std::size_t a, std::size_t b) { return begin_of(a) < begin_of(b); });
  std::vector<Job> out;
  Nanos end = kNoTime;
  for (const std::size_t p : all) {
    const auto [first, last] = times_of(pieces[p].traces[0]);
    if (out.empty() || first > end) out.emplace_back();
    out.back().push_back(p);
    end = std::max(end, last);
  }
  return out;
}

// The files by job; one job where that cannot be told.
std::vector<Job> separate(const std::vector<Piece>& pieces, const Job& all) {
  const bool day_times = std::all_of(all.begin(), all.end(),
                                     [&](std::size_t p) { return pieces[p].traces[0].snapshot; });
  const auto fits = [&](const std::vector<Job>& jobs) {
    // Names that differ in more than the rank, as in the number of the process, tell nothing.
    return jobs.size() > 1 && (jobs.size() < all.size() || all.size() == 2) &&
           std::none_of(jobs.begin(), jobs.end(),
                        [&](const Job& job) { return holds_a_rank_twice(pieces, job); });
  };
  if (auto jobs = by_name(pieces, all, name_without_rank); fits(jobs)) return jobs;
  if (auto jobs = by_name(pieces, all, [](const Piece& piece) { return shape_of(piece.name); });
      fits(jobs))
    return jobs;
  if (auto jobs = by_time(pieces, all); day_times && fits(jobs)) return jobs;
  return {all};
}

// Whether both are of one process: they have a call of one time in common.
bool of_one_process(const RankTrace& a, const RankTrace& b) {
  std::set<Nanos> times;
  const auto issued = [](const Event& event) {
    return event.kind == EventKind::issue && event.time != kNoTime;
  };
  for (const Event& event : a.events)
    if (issued(event)) times.insert(event.time);
  return std::any_of(b.events.begin(), b.events.end(), [&](const Event& event) {
    return issued(event) && times.contains(event.time);
  });
}

bool are_of_one_run(const std::vector<Piece>& pieces, const Job& a, const Job& b) {
  for (const std::size_t p : a)
    for (const std::size_t q : b)
      if (pieces[p].traces[0].rank == pieces[q].traces[0].rank &&
          of_one_process(pieces[p].traces[0], pieces[q].traces[0]))
        return true;
  return false;
}

// When something was last recorded, since 1970: by the calls where their times are those of the
// day, else by the files' times; kNoTime: not known.
Nanos newest_of(const std::vector<Piece>& pieces, const Job& job) {
  Nanos out = kNoTime;
  for (const std::size_t p : job) {
    const RankTrace& trace = pieces[p].traces[0];
    out = std::max(out, trace.snapshot ? times_of(trace).second : pieces[p].written);
  }
  return out;
}

std::size_t events_of(const std::vector<Piece>& pieces, const Job& job) {
  std::size_t out = 0;
  for (const std::size_t p : job) out += pieces[p].traces[0].events.size();
  return out;
}

std::string newest_words(Nanos time) {
  const std::time_t seconds = time / 1'000'000'000;
  std::tm utc{};
  if (time == kNoTime || gmtime_r(&seconds, &utc) == nullptr) return "";
  std::string out(64, '\0');
  out.resize(std::strftime(out.data(), out.size(), ", to %H:%M:%S UTC on %Y-%m-%d", &utc));
  return out;
}

// "old_rank_0 to old_rank_3 (4 files, to 10:29:12 UTC on 2026-11-30)".
std::string files_of(const std::vector<Piece>& pieces, const Job& job) {
  const auto [first, last] = std::minmax_element(job.begin(), job.end(), [&](auto a, auto b) {
    return pieces[a].traces[0].rank < pieces[b].traces[0].rank;
  });
  const std::string begin = printable(pieces[*first].name), end = printable(pieces[*last].name);
  return fmt::format("{} ({}{})", job.size() == 1 ? begin : fmt::format("{} to {}", begin, end),
                     plural(job.size(), "file"), newest_words(newest_of(pieces, job)));
}

}  // namespace

std::vector<std::string> leave_out_other_jobs(std::vector<Piece>& pieces) {
  std::map<std::pair<const Format*, fs::path>, Job> kinds;
  for (std::size_t p = 0; p < pieces.size(); ++p)
    if (may_be_of_another_job(pieces[p]))
      kinds[{pieces[p].kind(), fs::path(pieces[p].name).parent_path()}].push_back(p);
  std::vector<std::string> out;
  std::set<std::size_t> removed;
  for (auto& [kind, all] : kinds) {
    if (!holds_a_rank_twice(pieces, all)) continue;
    // Recordings without times are compared where one of each rank is chosen.
    std::erase_if(all,
                  [&](std::size_t p) { return times_of(pieces[p].traces[0]).first == kNoTime; });
    if (!holds_a_rank_twice(pieces, all)) continue;
    std::vector<Job> jobs = separate(pieces, all);
    std::sort(jobs.begin(), jobs.end(), [&](const Job& a, const Job& b) {
      const auto rating = [&](const Job& job) {
        return std::tuple(newest_of(pieces, job), job.size(), events_of(pieces, job));
      };
      return rating(a) != rating(b) ? rating(a) > rating(b) : pieces[a[0]].name < pieces[b[0]].name;
    });
    for (std::size_t j = 1; j < jobs.size(); ++j) {
      if (are_of_one_run(pieces, jobs[0], jobs[j])) continue;
      out.push_back(fmt::format(
          "the files are of several jobs, or of one at several times: {} were judged, the newest; "
          "{} were left out, and are judged if they are named alone",
          files_of(pieces, jobs[0]), files_of(pieces, jobs[j])));
      removed.insert(jobs[j].begin(), jobs[j].end());
    }
  }
  std::size_t next = 0;
  std::erase_if(pieces, [&](const Piece&) { return removed.contains(next++); });
  return out;
}

namespace {

// The size of the trace's job, where it is certain; kNone: it is not.
std::int32_t exact_size(const RankTrace& trace, const Tables& tables) {
  constexpr std::string_view kDefaultGroup = "default_pg";  // as PyTorch describes it
  for (const RankTrace::Membership& group : trace.groups)
    if (tables.str(group.desc) == kDefaultGroup && group.ranks.size() > 0)
      return static_cast<std::int32_t>(group.ranks.size());
  return trace.snapshot ? kNone : trace.world_size;  // that of a dump is a lower limit
}

}  // namespace

std::vector<std::string> leave_out_other_sizes(std::vector<RankTrace>& traces,
                                               const Tables& tables) {
  std::map<std::int32_t, std::set<std::int32_t>> ranks;  // by size
  for (const RankTrace& trace : traces) ranks[exact_size(trace, tables)].insert(trace.rank.value);
  if (ranks.size() < 2 || ranks.contains(kNone)) return {};
  // A job of one rank is complete with any trace of rank 0.
  const auto complete = std::find_if(ranks.begin(), ranks.end(), [](const auto& job) {
    const auto size = static_cast<std::size_t>(job.first);
    return size > 1 && job.second.size() == size && *job.second.rbegin() < job.first;
  });
  if (complete == ranks.end()) return {};
  const std::int32_t size = complete->first;
  std::vector<std::string> out;
  for (const auto& [other, of_it] : ranks) {
    if (other == size) continue;
    const std::vector<std::int32_t> numbers(of_it.begin(), of_it.end());
    const bool one = numbers.size() == 1;
    out.push_back(fmt::format(
        "the {} of {} {} {} of a job of {}, and those of the others are all of one of {}: {} left "
        "out, and {} judged if named alone",
        one ? "file" : "files", one ? "rank" : "ranks", folded_ranges(numbers), one ? "is" : "are",
        plural(static_cast<std::size_t>(other), "rank"), size, one ? "it was" : "they were",
        one ? "is" : "are"));
  }
  std::erase_if(traces, [&](const RankTrace& trace) { return exact_size(trace, tables) != size; });
  return out;
}

}  // namespace lockstep::trace
