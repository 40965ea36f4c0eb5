// Judges many injected faults and healthy runs and writes docs/accuracy.md.
//
// usage: accuracy_table [--seeds N] [--output FILE]
//        accuracy_table --list [--seeds N] [--form traces|dumps] [--only FAULT|healthy] [--seed N]
//
// --list shows what is wrong with each case instead; with INJECTION_DUMP=<folder>, --seed keeps its
// files there.

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "tests/verify/injection/faults.h"
#include "tests/verify/injection/judging.h"
#include "tests/verify/injection/meshes/mesh_tally.h"
#include "tests/verify/injection/recorded_programs.h"
#include "tests/verify/injection/trial.h"
#include "verify/report.h"
#include "verify/verify.h"

namespace lockstep::verify::injection {
namespace {

// Counts how often reports are what could be expected of them, and writes the counts as tables in
// Markdown.

// The score of the trials of one fault.
struct Score {
  int judged = 0;
  int found = 0;              // something of weight was said
  int open = 0;               // the verdict was "inconclusive"
  int rule = 0;               // … by a rule that the data allow
  int exact = 0;              // … by the fault's own rule
  int culprit = 0;            // … and the right ranks, or nobody where the data cannot show them
  int location = 0;           // … and group, number, step
  int clean = 0;              // nothing to complain about
  int overwritten = 0;        // not judged: the ring no longer had the call
  int overwritten_found = 0;  // of those, something was said
};

// How often a rule led a report, and how often it was one that the data allow there.
struct Said {
  int times = 0, right = 0;
};

struct Tally {
  std::array<Score, kFaults> scores{};
  std::map<std::string, Said> said;
  int healthy = 0, alarms = 0;

  void add(Fault fault, const Report& report, const Judgement& judgement);
  void add_overwritten(Fault fault, const Report& report);
  void add_healthy(const Report& report);

  Score total() const;
};

std::string leading(const Report& report) {
  if (report.findings.empty() || report.verdict == Verdict::clean) return "";
  return std::string(rule(report.findings[0].rule).name);
}

std::string share(int part, int whole) {
  if (whole == 0) return "–";
  // Rounded down, so that 100 % means no miss at all.
  const long long tenths = 1000LL * part / whole;
  return tenths == 1000 ? "100 %" : fmt::format("{}.{} %", tenths / 10, tenths % 10);
}

std::string row(std::string_view name, const std::string& own_rule, const Score& s) {
  const auto of_judged = [&](int part) { return share(part, s.judged); };
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", name, own_rule,
                     s.judged, of_judged(s.found), s.open, of_judged(s.rule), of_judged(s.exact),
                     of_judged(s.culprit), of_judged(s.location), s.judged - s.clean);
}

void Tally::add(Fault fault, const Report& report, const Judgement& judgement) {
  Score& s = scores[static_cast<std::size_t>(fault)];
  ++s.judged;
  s.found += judgement.found ? 1 : 0;
  s.open += judgement.open ? 1 : 0;
  s.rule += judgement.rule ? 1 : 0;
  s.exact += judgement.rule && leading(report) == rule_of(fault) ? 1 : 0;
  s.culprit += judgement.rule && judgement.culprit ? 1 : 0;
  s.location += judgement.rule && judgement.location ? 1 : 0;
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
    out.location += s.location;
    out.clean += s.clean;
    out.overwritten += s.overwritten;
    out.overwritten_found += s.overwritten_found;
  }
  return out;
}

// Recall, culprit and location by fault.
std::string table_of_faults(const Tally& tally) {
  std::string out =
      "| fault | its rule | cases | found | undecided | rule right | its own rule | culprit right "
      "| place right | wrong |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n";
  for (int f = 0; f < kFaults; ++f) {
    const auto fault = static_cast<Fault>(f);
    const Score& s = tally.scores[static_cast<std::size_t>(f)];
    if (s.judged == 0) continue;
    out += row(to_string(fault), fmt::format("`{}`", rule_of(fault)), s);
  }
  return out + row("**all**", "", tally.total());
}

// Precision by rule.
std::string table_of_rules(const Tally& tally) {
  const auto row_of = [](const std::string& name, const Said& said) {
    return fmt::format("| {} | {} | {} | {} |\n", name, said.times, said.right,
                       share(said.right, said.times));
  };
  std::string out = "| rule | led a report | rightly | precision |\n|---|--:|--:|--:|\n";
  Said all;
  for (const auto& [name, said] : tally.said) {
    out += row_of("`" + name + "`", said);
    all.times += said.times;
    all.right += said.right;
  }
  return out + row_of("**all**", all);
}

struct Options {
  std::uint32_t seeds = 200;
  bool list = false;
  std::string only, form, output;
  std::int64_t seed = -1;  // of one case; -1: all
};

class Judge {
 public:
  Judge(Form form, const Programs& programs, const Options& options)
      : form_(form), programs_(programs), options_(options) {}

  Tally judge_all() {
    for (int f = 0; f < kFaults; ++f) {
      const auto fault = static_cast<Fault>(f);
      if (!options_.only.empty() && options_.only != to_string(fault)) continue;
      for (std::uint32_t seed = 0; seed < options_.seeds; ++seed) {
        if (options_.seed < 0 || options_.seed == seed) judge_fault(fault, seed);
      }
    }
    if (!options_.only.empty() && options_.only != "healthy") return tally_;
    for (std::uint32_t seed = 0; seed < options_.seeds * 5; ++seed) {
      if (options_.seed < 0 || options_.seed == seed) judge_healthy(seed);
    }
    return tally_;
  }

 private:
  void judge_fault(Fault fault, std::uint32_t seed) {
    Random random(seed * 1000 + static_cast<std::uint32_t>(fault));
    const auto trial = make_trial(fault, programs_, form_, random);
    if (!trial) return;
    const Report report = verify(read_files(trial->files));
    if (trial->overwritten) return tally_.add_overwritten(fault, report);
    const Judgement judgement = judge(report, trial->expected);
    tally_.add(fault, report, judgement);
    if (judgement.complaint.empty()) return;
    show(fmt::format("{} seed {}", to_string(fault), seed), *trial,
         fmt::format("{}; culprit {}", judgement.complaint,
                     text_of(trial->expected.culprits.value_or(std::vector<int>{}))),
         report);
  }

  void judge_healthy(std::uint32_t seed) {
    Random random(seed * 1000 + 999);
    const Trial trial = make_healthy(programs_, form_, random);
    const Report report = verify(read_files(trial.files));
    tally_.add_healthy(report);
    if (report.verdict == Verdict::findings) {
      show(fmt::format("healthy seed {}", seed), trial, "false alarm", report);
    }
  }

  void show(const std::string& what, const Trial& trial, const std::string& wrong,
            const Report& report) const {
    if (!options_.list) return;
    std::cout << what << " (" << trial.words << ")\n  " << wrong << "\n  got " << text_of(report)
              << "\n";
    if (options_.seed >= 0) keep(trial.files);
  }

  const Form form_;
  const Programs& programs_;
  const Options& options_;
  Tally tally_;
};

// How many of so many dumps, taken of healthy jobs under way, have findings: with the times of the
// files, and where these were lost.
struct Alarms {
  std::uint32_t with_times = 0, without = 0;
};
Alarms alarms_in_running(std::uint32_t dumps) {
  Alarms alarms;
  for (std::uint32_t seed = 0; seed < dumps; ++seed) {
    Random random(seed * 1000 + 998);
    const Trial trial = make_running(generated_program, random);
    const auto raised = [&](trace::Nanos written) {
      return verify(read_files(trial.files, written)).verdict == Verdict::findings ? 1U : 0U;
    };
    alarms.with_times += raised(trial.stopped_at);
    alarms.without += raised(trace::kNoTime);
  }
  return alarms;
}

std::string section(std::string_view title, std::string_view introduction, const Tally& tally) {
  std::string out = fmt::format("## {}\n\n{}\n\n{}\nHealthy runs: {}, false alarms: {}.\n", title,
                                introduction, table_of_faults(tally), tally.healthy, tally.alarms);
  const Score all = tally.total();
  if (all.overwritten > 0) {
    out += fmt::format(
        "\nNot in the table: {} cases whose place the dumps do not hold (overwritten, or completed "
        "where only "
        "active calls are kept); something was said of {}.\n",
        all.overwritten, all.overwritten_found);
  }
  return out + "\n" + table_of_rules(tally) + "\n";
}

constexpr std::string_view kTop = R"(# How accurate the verdicts are

Generated by `tests/verify/injection`; do not edit. To make it again:

    cmake --build --preset core --target accuracy

Programs are made by chance, in nine shapes that training jobs have (DDP buckets, per-parameter
reductions, FSDP, data × tensor parallel, two groups, pipeline, ring, experts, a mixture), with 2 to
9 ranks and 4 to 10 steps. One fault is put into each; an executor that shares no code with the
verifier runs it; what is recorded varies (parameters, steps, places, types, times). The judge is
asked for no more than the recording can show.

- **found**: the verdict is `findings`. *undecided*: it is `inconclusive`; the rest is missed.
- **rule right**: the leading finding has a rule that the recording allows. **its own rule**: it has
  the one rule that names the fault where everything is recorded.
- **culprit right**, **place right**: the leading finding has the right rule and the right ranks; the
  right rule and the right group, number and step. Where no recording could tell, naming nobody is
  right.
- **wrong**: cases with anything to complain about: the above, a second error of one cause, or a
  wrong certainty.
- **precision**, by rule: of the reports that it leads, healthy runs included, those in which it is
  right.

A share is rounded down: 100 % has no exception. The tables hide nothing: `accuracy_table --list`
shows each case that is counted as wrong, with its seed.

)";

constexpr std::string_view kLimits = R"(## What cannot be told apart, and why

- **Two ranks, or two equal halves, that differ.** Without a past that repeats, names or steps,
  either may be the deviant. Naming nobody is right; a guess counts as wrong.
- **Equal calls without names.** A call left out among equal ones shows where the sequence first
  looks different, or at its end: as another number, another rule, or one iteration less.
- **The last call of a program left out**, and one iteration less.
- **Traces: a call of the wrong size and a call too many**, where the rank ends in it.
- **Dumps: a host that stands still, a rank that raised, one that left the loop, one that left out
  its last call.** All just stop calling: `host-stall` is right for each.
- **Dumps: one rank that goes on, and all the others standing still.** No culprit is asked for.
- **Dumps: a killed process** writes none: `missing-rank`, and `inconclusive`.
- **Dumps: reduce operation, root, parameters, steps, modalities, splits of all-to-all, waits** are
  not recorded; those faults are not in the dumps' tables, and `modality_branch` is a
  `missing-collective` there.
- **Dumps: an open message, where the ring lost its channel's first messages.** Nobody posted its
  other side, or the peer completed that and was read a moment later. `--hung` decides.
- **Dumps of a job under way, copied without the times of the files.** A rank that others wait for
  may come at the next moment. Only a file's time tells how long they had waited when it was
  written; without it, this looks like a host or device that stands still.
)";

constexpr std::string_view kMeshes = R"(## Meshes under NCCL's rules

Random meshes of 2 to 64 ranks with tensor-, data-, pipeline- and expert-parallel groups, 3 to 6 steps,
batched messages. Hosts enqueue and go on; each communicator has a stream; a wait only orders streams;
a kernel completes when all members' kernels run; in a third of the runs the kernels of one device keep
each other from running. One run is written in every form that it can be recorded in; the blocking
executor runs the same program for G. Each answer is judged by what that form shows.

- **exact**: the right ranks, or nobody where no one can be told. **among**: some of them, or others
  as well. **nobody**: found, and no rank named though one could be. **innocents**: only others.
- **undecided**: `inconclusive` where the data allow it. **missed**: `clean` or `inconclusive` where
  they tell.
- **rule right**, **place right**: of the exact findings.

)";

std::string page(const Options& options) {
  std::string out(kTop);
  const std::uint32_t healthy = options.seeds * 5;
  out += fmt::format("Made with {} seeds per fault and {} healthy runs per source.\n\n",
                     options.seeds, healthy);
  const Programs generated = generated_program;
  const Tally traces = Judge(Form::traces, generated, options).judge_all();
  const Tally dumps = Judge(Form::dumps, generated, options).judge_all();
  out += section("Full traces", "Every call of every rank, in the text form.", traces);
  out += section("Flight Recorder dumps",
                 "Ranks with devices: the host enqueues and runs ahead, the device works in "
                 "queues. Written as\n"
                 "pickles (schema 2.10), read back by the reader: rings of 12 to 2000 entries, "
                 "with or without\n"
                 "timing, frames and completed calls. Healthy ones are seen up to four calls late.",
                 dumps);
  const Alarms running = alarms_in_running(healthy);
  out += fmt::format(
      "Dumps taken of healthy jobs under way, ranks at different calls: {}, of which something was "
      "said of {}, and of {} where the files had lost their times (see the end of this page).\n\n",
      healthy, running.with_times, running.without);
  out += std::string(kMeshes) +
         mesh_tables(judge_meshes({.programs = static_cast<int>(options.seeds) * 10}));
  const struct {
    const char* title;
    std::vector<Recorded> programs;
    Form form;
  } corpora[] = {{"Recorded programs: traces", recorded_traces(shared_data()), Form::traces},
                 {"Recorded programs: dumps", recorded_dumps(shared_data()), Form::dumps},
                 {"Recorded programs: MPI", recorded_mpi(shared_data()), Form::traces}};
  Options few = options;
  few.seeds = options.seeds / 4 + 1;
  for (const auto& corpus : corpora) {
    if (corpus.programs.empty()) {
      out += fmt::format("## {}\n\nThe corpus was not there.\n\n", corpus.title);
      continue;
    }
    out += section(corpus.title,
                   fmt::format("{} healthy runs from disk, run again with one fault each ({} seeds "
                               "per fault).",
                               corpus.programs.size(), few.seeds),
                   Judge(corpus.form, any_of(corpus.programs), few).judge_all());
  }
  return out + std::string(kLimits);
}

std::int64_t number(std::string_view text) {
  std::int64_t value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Options parse(const std::vector<std::string_view>& arguments) {
  Options out;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i];
    if (name == "--list") out.list = true;
    if (i + 1 == arguments.size()) break;
    const std::string_view value = arguments[i + 1];
    if (name == "--seeds" && number(value) > 0) {
      out.seeds = static_cast<std::uint32_t>(std::min<std::int64_t>(number(value), 100000));
    }
    if (name == "--seed") out.seed = number(value);
    if (name == "--only") out.only = value;
    if (name == "--form") out.form = value;
    if (name == "--output") out.output = value;
  }
  return out;
}

int run(const Options& options) {
  if (!options.list) {
    const std::string text = page(options);
    if (options.output.empty()) {
      std::cout << text;
      return 0;
    }
    std::ofstream out(options.output, std::ios::binary);
    return out << text && out.flush() ? 0 : 1;
  }
  const Programs generated = generated_program;
  for (const Form form : {Form::traces, Form::dumps}) {
    if (!options.form.empty() && (options.form == "traces") != (form == Form::traces)) continue;
    std::cout << table_of_faults(Judge(form, generated, options).judge_all()) << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::verify::injection

int main(int argc, char** argv) {
  return lockstep::verify::injection::run(
      lockstep::verify::injection::parse({argv + 1, argv + argc}));
}
