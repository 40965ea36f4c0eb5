#include "tests/verify/program.h"

#include <algorithm>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/text.h"
#include "tests/support/trace_text.h"

namespace lockstep::verify {

namespace {

using OrderedJson = nlohmann::ordered_json;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) out.push_back(part);
  return out;
}

std::vector<std::string> words(const std::string& item) {
  std::istringstream stream(item);
  std::vector<std::string> out;
  for (std::string word; stream >> word;) out.push_back(word);
  return out;
}

OrderedJson numbers(const std::string& list) {
  OrderedJson out = OrderedJson::array();
  for (const std::string& part : split(list, ',')) out.push_back(std::stoll(part));
  return out;
}

class ProgramTextWriter {
 public:
  ProgramTextWriter(std::int32_t rank, std::int32_t world_size, bool timed,
                    const std::vector<std::vector<std::string>>& items)
      : timed_(timed) {
    OrderedJson header = {
        {"header", 1}, {"rank", rank}, {"world_size", world_size}, {"backend", "gloo"}};
    for (const auto& w : items) {
      if (w[0] == "mpi") header["semantics"] = "mpi";
      if (w[0] == "backend") header["backend"] = w[1];
    }
    line(header);
    OrderedJson all = OrderedJson::array();
    for (std::int32_t r = 0; r < world_size; ++r) all.push_back(r);
    line({{"group", "world"}, {"ranks", all}});
  }

  void item(const std::vector<std::string>& w) {
    static const std::vector<std::string> kEnds = {"clean", "hung", "killed", "exception",
                                                   "interrupted"};
    if (w[0] == "cut" || w[0] == "mpi" || w[0] == "backend") return;
    if (std::find(kEnds.begin(), kEnds.end(), w[0]) != kEnds.end()) {
      line({{"end", w[0]}});
    } else if (w[0] == "group") {
      OrderedJson group = {{"group", w[1]}, {"ranks", numbers(w[2])}};
      if (w.size() > 3) group["desc"] = w[3];
      line(group);
    } else if (w[0] == "modality") {
      event({{"ev", "modality"}, {"n", std::stoll(w[1])}, {"has", split(w[2], ',')}});
    } else if (w[0] == "span") {
      event({{"ev", "span"}, {"name", w[1]}, {"dur", 5}});
    } else if (w[0] == "step") {
      event({{"ev", "step"}, {"n", std::stoll(w[1])}});
    } else if (w[0] == "wait") {
      event({{"ev", "wait"}, {"id", std::stoll(w[1])}});
      if (w.back() != "open") event({{"ev", "waited"}, {"id", std::stoll(w[1])}});
    } else if (w[0] == "use" || w[0] == "write") {
      event({{"ev", w[0]}, {"id", std::stoll(w[1])}});
    } else if (w[0] == "raise") {
      raise(w);
    } else {
      call(w);
    }
  }

  std::string text() const { return text_; }

 private:
  void line(const OrderedJson& json) { text_ += json.dump() + "\n"; }
  void event(OrderedJson json) {
    if (timed_) json["t"] = time_ += 10;
    line(json);
  }

  void raise(const std::vector<std::string>& w) {
    OrderedJson json = {{"ev", "exception"}};
    std::size_t first = 1;
    if (w.size() > 1 && std::isdigit(static_cast<unsigned char>(w[1][0])) != 0) {
      json["id"] = std::stoll(w[first++]);
    }
    std::string what;
    for (std::size_t i = first; i < w.size(); ++i) what += (what.empty() ? "" : " ") + w[i];
    json["what"] = what;
    event(json);
  }

  void call(const std::vector<std::string>& w) {
    OrderedJson json = {{"ev", "issue"}, {"id", next_}, {"g", "world"}, {"op", w[0]}};
    OrderedJson complete = {{"ev", "complete"}, {"id", next_}};
    bool async = false;
    bool completes = true;
    for (std::size_t i = 1; i < w.size(); ++i) {
      const std::size_t equals = w[i].find('=');
      const std::string key = w[i].substr(0, equals);
      const std::string value = equals == std::string::npos ? "" : w[i].substr(equals + 1);
      if (key == "async")
        async = true;
      else if (key == "open")
        completes = false;
      else if (key == "n")
        json["in"] = json["out"] = OrderedJson::array({numbers(value)});
      else if (key == "in" || key == "out")
        json[key] = OrderedJson::array({numbers(value)});
      else if (key == "what")
        json["what"] = split(value, ',');
      else if (key == "in_splits")
        json["splits_in"] = numbers(value);
      else if (key == "out_splits")
        json["splits_out"] = numbers(value);
      else if (key == "from" || key == "fromtag")
        complete[key] = std::stoll(value);
      else if (key == "count" || key == "step" || key == "root" || key == "peer" || key == "ptag" ||
               key == "coalesced" || key == "thread")
        json[key] = std::stoll(value);
      else if (key == "g" || key == "dtype" || key == "redop" || key == "at" || key == "mode" ||
               key == "tag")
        json[key] = value;
      else
        LOCKSTEP_CHECK(false, "unknown word in a test program: " + w[i]);
    }
    json["async"] = async;
    event(json);
    if (completes && timed_) event(complete);
    ++next_;
  }

  const bool timed_;
  std::int64_t next_ = 0;
  std::int64_t time_ = 1000;
  std::string text_;
};

}  // namespace

std::string program_text(std::int32_t rank, std::int32_t world_size, const std::string& program,
                         bool timed) {
  std::vector<std::vector<std::string>> items;
  for (const std::string& item : split(program, ';')) {
    if (auto w = words(item); !w.empty()) items.push_back(std::move(w));
  }
  ProgramTextWriter writer(rank, world_size, timed, items);
  for (const auto& w : items) writer.item(w);
  return writer.text();
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

trace::Run program(const std::vector<std::string>& programs, bool timed) {
  std::vector<std::string> texts;
  for (const std::string& p : programs) {
    texts.push_back(program_text(static_cast<std::int32_t>(texts.size()),
                                 static_cast<std::int32_t>(programs.size()), p, timed));
  }
  return run_from_text(texts);
}

trace::Run run_of(const std::vector<RankProgram>& programs, std::int32_t world_size) {
  std::vector<std::string> texts;
  for (const RankProgram& p : programs) texts.push_back(program_text(p.rank, world_size, p.text));
  return run_from_text(texts);
}

std::string summary(const Report& report) {
  std::string out;
  for (const Finding& f : report.findings) {
    EXPECT_TRUE(rule(f.rule).certainties.has(f.certainty)) << rule(f.rule).name;
    if (f.severity == Severity::note) continue;
    out += std::string(rule(f.rule).name) + " " + std::string(to_string(f.severity)) + " " +
           std::string(to_string(f.certainty));
    std::vector<std::int32_t> culprits;
    for (const trace::Rank r : f.culprits) culprits.push_back(r.value);
    if (!culprits.empty()) out += " culprits=" + ranges(culprits);
    if (!f.group.empty()) out += " group=" + f.group;
    if (f.seq) out += " seq=" + std::to_string(*f.seq);
    if (f.step) out += " step=" + std::to_string(*f.step);
    out += "\n";
  }
  return out + "verdict " + std::string(to_string(report.verdict));
}

}  // namespace lockstep::verify
