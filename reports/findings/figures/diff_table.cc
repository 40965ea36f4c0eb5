#include "reports/findings/figures/diff_table.h"

#include "base/columns.h"
#include "reports/findings/finding_words.h"
#include "reports/html/markup.h"
#include "verify/streams/agreement.h"

namespace lockstep::html {
namespace {

std::string_view end_words(End end) {
  switch (end) {
    case End::cut:
      return "the trace ends";
    case End::clean:
      return "the program ends";
    case End::hung:
      return "hangs";
    case End::exception:
      return "an exception ends it";
    case End::killed:
      return "killed";
  }
  return "";
}

std::string call_cells(const RankTrace& trace, const Tables& tables, std::uint32_t index,
                       std::uint64_t seq, std::string_view look, std::string_view sign) {
  const Call& call = trace.calls[index];
  const std::string classes = look.empty() ? "" : " class=\"" + std::string(look) + "\"";
  std::string out = "<td class=\"n " + std::string(look) + "\">" + std::to_string(seq) +
                    "</td><td" + classes + "><span class=\"sign\">" + std::string(sign) +
                    "</span>" + code(describe(tables, call));
  if (call.at.value != 0) out += "<span class=\"at\">" + text(tables.str(call.at)) + "</span>";
  return out + "</td>";
}

class Table {
 public:
  Table(const SequenceDiff& diff, const Run& run) : diff_(diff), run_(run) {}

  std::string str() {
    std::string rows;
    for (const DiffRow& row : diff_.rows) rows += "<tr>" + usual(row) + deviant(row) + "</tr>\n";
    rows += ends();
    return "<section><h3>Call by call</h3>" +
           scroller("the calls of both sides",
                    "<table class=\"diff\"><thead><tr>" + head(diff_.usual, "in") +
                        head(diff_.deviant, "out") + "</tr></thead><tbody>" + rows +
                        "</tbody></table>") +
           "</section>\n";
  }

 private:
  static std::string head(const DiffSide& side, std::string_view look) {
    return "<th class=\"n " + std::string(look) + "\">seq</th><th class=\"" + std::string(look) +
           "\">" + text(rank_label(side.ranks, 40)) + "</th>";
  }

  std::string usual(const DiffRow& row) const {
    if (!row.usual) return "<td class=\"n empty\"></td><td class=\"empty\"></td>";
    return call_cells(run_.ranks[diff_.usual.rank_index], run_.tables, *row.usual, row.usual_seq,
                      row.same ? "" : "in",
                      row.same      ? " "
                      : row.deviant ? "≠"
                                    : "+");
  }

  std::string deviant(const DiffRow& row) const {
    if (!row.deviant) return "<td class=\"n empty\"></td><td class=\"empty\"></td>";
    return call_cells(run_.ranks[diff_.deviant.rank_index], run_.tables, *row.deviant,
                      row.deviant_seq, row.same ? "twin" : "out",
                      row.same    ? " "
                      : row.usual ? "≠"
                                  : "+");
  }

  std::string ends() const {
    if (!diff_.usual.ends && !diff_.deviant.ends) return {};
    return "<tr>" + end_of(diff_.usual) + end_of(diff_.deviant) + "</tr>\n";
  }

  std::string end_of(const DiffSide& side) const {
    const std::string_view words = side.ends ? end_words(run_.ranks[side.rank_index].end) : "…";
    return "<td class=\"n\"></td><td class=\"soft\"><span class=\"sign\"> </span>" + text(words) +
           "</td>";
  }

  const SequenceDiff& diff_;
  const Run& run_;
};

}  // namespace

std::string diff_table(const SequenceDiff& diff, const Run& run) { return Table(diff, run).str(); }

}  // namespace lockstep::html
