#include "tests/verify/injection/tally.h"

#include <cstdio>

namespace lockstep::verify::injection {

namespace {

std::string leading(const Report& report) {
  if (report.findings.empty() || report.verdict == Verdict::clean) return "";
  return std::string(rule(report.findings[0].rule).name);
}

std::string share(int part, int whole) {
  if (whole == 0) return "–";
  std::array<char, 32> text{};
  // Rounded down: 100 % is said of no misses alone.
  const int tenths = static_cast<int>(1000LL * part / whole);
  std::snprintf(text.data(), text.size(), "%d.%d %%", tenths / 10, tenths % 10);
  return tenths == 1000 ? "100 %" : text.data();
}

std::string row(const std::string& name, const std::string& own_rule, const Score& s) {
  return "| " + name + " | " + own_rule + " | " + std::to_string(s.judged) + " | " +
         share(s.found, s.judged) + " | " + std::to_string(s.open) + " | " +
         share(s.rule, s.judged) + " | " + share(s.exact, s.judged) + " | " +
         share(s.culprit, s.judged) + " | " + share(s.place, s.judged) + " | " +
         std::to_string(s.judged - s.clean) + " |\n";
}

}  // namespace

void Tally::add(Fault fault, const Report& report, const Judgement& judgement) {
  Score& s = scores[static_cast<std::size_t>(fault)];
  ++s.judged;
  s.found += judgement.found ? 1 : 0;
  s.open += judgement.open ? 1 : 0;
  s.rule += judgement.rule ? 1 : 0;
  s.exact += judgement.rule && leading(report) == rule_of(fault) ? 1 : 0;
  s.culprit += judgement.rule && judgement.culprit ? 1 : 0;
  s.place += judgement.rule && judgement.place ? 1 : 0;
  s.clean += judgement.complaint.empty() ? 1 : 0;
  if (leading(report).empty()) return;
  Said& said_here = said[leading(report)];
  ++said_here.times;
  said_here.right += judgement.rule ? 1 : 0;
}

void Tally::add_overwritten(Fault fault, const Report& report) {
  Score& s = scores[static_cast<std::size_t>(fault)];
  ++s.overwritten;
  s.overwritten_found += report.verdict == Verdict::findings ? 1 : 0;
}

void Tally::add_healthy(const Report& report) {
  ++healthy;
  if (report.verdict != Verdict::findings) return;
  ++alarms;
  ++said[leading(report)].times;
}

Score Tally::total() const {
  Score out;
  for (const Score& s : scores) {
    out.judged += s.judged;
    out.found += s.found;
    out.open += s.open;
    out.rule += s.rule;
    out.exact += s.exact;
    out.culprit += s.culprit;
    out.place += s.place;
    out.clean += s.clean;
    out.overwritten += s.overwritten;
    out.overwritten_found += s.overwritten_found;
  }
  return out;
}

std::string table_of_faults(const Tally& tally) {
  std::string out =
      "| fault | its rule | cases | found | undecided | rule right | its own rule | culprit right "
      "| place "
      "right "
      "| wrong |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n";
  for (int f = 0; f < kFaults; ++f) {
    const auto fault = static_cast<Fault>(f);
    const Score& s = tally.scores[static_cast<std::size_t>(f)];
    if (s.judged == 0) continue;
    out += row(to_string(fault), "`" + std::string(rule_of(fault)) + "`", s);
  }
  return out + row("**all**", "", tally.total());
}

std::string table_of_rules(const Tally& tally) {
  std::string out = "| rule | led a report | rightly | precision |\n|---|--:|--:|--:|\n";
  Said all;
  for (const auto& [name, said] : tally.said) {
    out += "| `" + name + "` | " + std::to_string(said.times) + " | " + std::to_string(said.right) +
           " | " + share(said.right, said.times) + " |\n";
    all.times += said.times;
    all.right += said.right;
  }
  return out + "| **all** | " + std::to_string(all.times) + " | " + std::to_string(all.right) +
         " | " + share(all.right, all.times) + " |\n";
}

}  // namespace lockstep::verify::injection
