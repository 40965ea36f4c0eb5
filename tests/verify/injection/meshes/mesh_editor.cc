#include "tests/verify/injection/meshes/mesh_editor.h"

#include <algorithm>
#include <utility>

#include "tests/verify/injection/meshes/mesh_jobs.h"

namespace lockstep::verify::injection {

MeshEditor::MeshEditor(Job& job, Random& random) : job_(job), random_(random) {
  const int when = pick(random, 0, 3);
  first_ = when == 0 ? 0 : when == 1 ? job.steps - 1 : 1;
  last_ = when == 0 ? 0 : job.steps - 1;
}

std::optional<MeshEditor::Site> MeshEditor::find_call(const Test& test) {
  std::vector<Site> sites;
  for (int r = 0; r < job_.world(); ++r) {
    for (std::size_t i = 0; i < actions(r).size(); ++i) {
      const Action& a = actions(r)[i];
      if (a.kind != Action::Kind::issue || a.call.step < first_ || a.call.step > last_) continue;
      if (size_of(a.call.group) > 1 && test(a.call)) sites.push_back({r, i});
    }
  }
  if (sites.empty()) return std::nullopt;
  return any(sites);
}

std::optional<MeshEditor::Site> MeshEditor::find(const Test& test) {
  return find_call([&](const CallSpec& c) { return !is_point_to_point(c) && test(c); });
}

std::int64_t MeshEditor::seq_of(const Site& s) {
  const auto all = collectives(actions(s.rank), call(s).group);
  return std::find(all.begin(), all.end(), s.at) - all.begin();
}

void MeshEditor::remove(int rank, std::size_t at) {
  Actions& list = actions(rank);
  const int handle = list[at].handle;
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
  erase_waits(list, handle);
}

void MeshEditor::insert(int rank, std::size_t at, Action a) {
  Actions& list = actions(rank);
  list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), std::move(a));
}

Deviation MeshEditor::at_call(std::vector<int> culprits, const CallSpec& c, std::int64_t seq) {
  Deviation d;
  std::sort(culprits.begin(), culprits.end());
  d.groups = {c.group};
  d.seq = seq;
  d.step = c.step;
  const Members& members = job_.groups.at(c.group);
  const auto deviate = std::count_if(members.begin(), members.end(), [&](int m) {
    return std::binary_search(culprits.begin(), culprits.end(), m);
  });
  const bool majority = 2 * static_cast<std::size_t>(deviate) < members.size();
  const auto sisters = std::count_if(job_.groups.begin(), job_.groups.end(), [&](const auto& g) {
    return dimension(g.first) == dimension(c.group);
  });
  // Where a whole row of ranks deviates, so do half of the sisters' members.
  const bool alone = culprits.size() == static_cast<std::size_t>(deviate);
  d.has_reference = majority || (alone && sisters > 1);
  d.is_regular = c.op != "barrier" && c.step != kUnset;
  d.culprits = std::move(culprits);
  return d;
}

Action MeshEditor::added_call(CallSpec c) {
  Action a;
  a.handle = 100000 + added_++;
  a.call = std::move(c);
  return a;
}

void MeshEditor::set_batch(int rank, int step, const std::vector<std::string>& names) {
  for (Action& a : actions(rank)) {
    if (a.kind == Action::Kind::modality && a.n == step) a.names = names;
  }
}

MeshEditor::First MeshEditor::remove_all(int rank, int step, const Test& test) {
  First first;
  Actions& list = actions(rank);
  for (std::size_t i = list.size(); i-- > 0;) {
    if (list[i].kind != Action::Kind::issue || list[i].call.step != step) continue;
    if (!test(list[i].call)) continue;
    first = {list[i].call.group, seq_of({rank, i})};
    remove(rank, i);
  }
  return first;
}

std::vector<int> MeshEditor::row_of(int rank, const std::set<std::string>& dimensions) {
  std::vector<int> row = {rank};
  for (std::size_t i = 0; i < row.size(); ++i) {
    for (const auto& [name, members] : job_.groups) {
      if (!dimensions.contains(dimension(name))) continue;
      if (std::find(members.begin(), members.end(), row[i]) == members.end()) continue;
      for (const int m : members) {
        if (std::find(row.begin(), row.end(), m) == row.end()) row.push_back(m);
      }
    }
  }
  std::sort(row.begin(), row.end());
  return row;
}

int MeshEditor::pick_most(std::size_t members) {
  const auto n = static_cast<int>(members);
  return pick(random_, n / 2 + 1, n - 1);
}

}  // namespace lockstep::verify::injection
