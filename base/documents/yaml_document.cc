#include "base/documents/yaml_document.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include "base/numbers.h"
#include "base/text.h"

namespace lockstep {

namespace {

// Bounds against hostile input. Real files have a few hundred values, nested a few levels.
constexpr std::size_t kMaxBytes = 1 << 20;
constexpr std::size_t kMaxNodes = 20'000;
constexpr std::size_t kMaxDepth = 32;

Location location_of(const std::string& file, const YAML::Mark& mark) {
  if (mark.is_null()) return {file, 0, 0};
  return {file, mark.line + 1, mark.column + 1};
}

// The place that comes after `before`, the beginning of the file's text. Columns are characters.
Location place_after(const std::string& file, std::string_view before) {
  const std::size_t line = before.rfind('\n') + 1;  // 0 in the first line
  return {file, 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n')),
          1 + static_cast<int>(columns_of(before.substr(line)))};
}

// A plain scalar, typed as in YAML 1.2's core schema, without octal, hexadecimal, infinities and
// NaN, which no scenario needs. 12 is an integer, 1e3 a number, "1.2.3" and "yes" are text.
nlohmann::json plain_scalar(const std::string& text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL")
    return nullptr;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  std::string_view number = text;
  if (number.front() == '+') number.remove_prefix(1);
  if (number.empty() || number.find_first_not_of("0123456789.eE+-") != std::string_view::npos)
    return text;
  if (const auto whole = parse_number<std::int64_t>(number)) return *whole;
  if (const auto real = parse_number<double>(number); real && std::isfinite(*real)) return *real;
  return text;
}

// Thrown out of yaml-cpp's callbacks, which cannot return errors; caught in parse_yaml().
struct Refused {
  Error error;
};

// Builds the document from the parser's events. YAML::Load is not used: it expands aliases without
// copying, so that a small file becomes an endless tree, and LoadAll does not terminate on some bad
// input.
class DocumentBuilder : public YAML::EventHandler {
 public:
  explicit DocumentBuilder(const std::string& file) : file_(file) {}

  YamlDocument take() { return std::move(document_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    // The mark of an absent value ("key:" without anything) is that of the next token; the key is
    // the better location.
    const Location key = begin_value(mark);
    end_value(nullptr, {key, key}, anchor, 1);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    // A long text counts as several nodes: aliases multiply texts as well.
    count(value.size() / 64, mark);
    if (!stack_.empty() && stack_.back().expects_key()) return set_key(mark, value);
    const Location key = begin_value(mark);
    // yaml-cpp's tags: "!" for a quoted scalar, which is always text, "?" for a plain one.
    end_value(tag == "?" ? plain_scalar(value) : nlohmann::json(value),
              {key, location_of(file_, mark)}, anchor, 1 + value.size() / 64);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const Location key = begin_value(mark);
    const auto found = anchors_.find(anchor);
    // An anchor is known once its value has ended: "&a [*a]" refers to itself.
    if (found == anchors_.end())
      throw Refused{{"an alias inside the value that it names", location_of(file_, mark),
                     "write the value out instead"}};
    count(found->second.nodes, mark);
    end_value(found->second.value, {key, location_of(file_, mark)}, 0, found->second.nodes);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin_container(mark, anchor, nlohmann::json::array());
  }
  void OnSequenceEnd() override { end_container(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin_container(mark, anchor, nlohmann::json::object());
  }
  void OnMapEnd() override { end_container(); }

 private:
  // A list or mapping that is still open.
  struct Open {
    nlohmann::json value;
    std::string pointer;
    YamlDocument::Spot spot;
    YAML::anchor_t anchor = 0;
    std::size_t nodes_before = 0;
    std::optional<std::string> key = std::nullopt;  // of the next value
    Location key_location = {};

    bool expects_key() const { return value.is_object() && !key; }
  };
  struct Anchored {
    nlohmann::json value;
    std::size_t nodes = 0;
  };

  static Refused too_much(const std::string& what, const Location& location) {
    return {{fmt::format("{} (an alias counts as the value that it refers to)", what), location,
             "make the file simpler"}};
  }

  void count(std::size_t nodes, const YAML::Mark& mark) {
    nodes_ += nodes;
    if (nodes_ > kMaxNodes) throw too_much("more than 20000 values", location_of(file_, mark));
  }

  // Counts a value that begins at `mark`. Returns the location of its key, or its own if it has
  // none.
  Location begin_value(const YAML::Mark& mark) {
    count(1, mark);
    const Location location = location_of(file_, mark);
    if (stack_.empty() || !stack_.back().value.is_object()) return location;
    // A list or mapping as the key of a mapping: "? [a, b] : c".
    if (!stack_.back().key) throw Refused{{"a key should be text", location, "put it into quotes"}};
    return stack_.back().key_location;
  }

  std::string pointer_of_next() const {
    if (stack_.empty()) return "";
    const Open& open = stack_.back();
    return fmt::format("{}/{}", open.pointer,
                       open.key ? pointer_part(*open.key) : std::to_string(open.value.size()));
  }

  void set_key(const YAML::Mark& mark, const std::string& key) {
    Open& open = stack_.back();
    open.key_location = location_of(file_, mark);
    if (open.value.contains(key)) {
      const Location& first =
          document_.key_location(fmt::format("{}/{}", open.pointer, pointer_part(key)));
      throw Refused{{fmt::format("the key \"{}\" is given twice; first in line {}, column {}",
                                 printable(key), first.line, first.column),
                     open.key_location, "remove one of the two"}};
    }
    open.key = key;
  }

  void begin_container(const YAML::Mark& mark, YAML::anchor_t anchor, nlohmann::json empty) {
    const Location key = begin_value(mark);
    const Location location = location_of(file_, mark);
    if (stack_.size() >= kMaxDepth) throw too_much("values nested more than 32 deep", location);
    // nodes_ - 1: the container itself is counted already and belongs to its anchor.
    stack_.push_back({std::move(empty), pointer_of_next(), {key, location}, anchor, nodes_ - 1});
  }

  void end_container() {
    Open closed = std::move(stack_.back());
    stack_.pop_back();
    end_value(std::move(closed.value), closed.spot, closed.anchor, nodes_ - closed.nodes_before);
  }

  void end_value(nlohmann::json value, const YamlDocument::Spot& spot, YAML::anchor_t anchor,
                 std::size_t nodes) {
    document_.spots[pointer_of_next()] = spot;
    if (anchor != 0) anchors_[anchor] = {value, nodes};
    if (stack_.empty()) {
      document_.value = std::move(value);
      return;
    }
    Open& open = stack_.back();
    if (open.value.is_array())
      open.value.push_back(std::move(value));
    else
      open.value[*std::exchange(open.key, std::nullopt)] = std::move(value);
  }

  const std::string& file_;
  YamlDocument document_;
  std::vector<Open> stack_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  std::size_t nodes_ = 0;
};

// The spot of the longest known pointer that is `pointer` or encloses it.
const YamlDocument::Spot& nearest_spot(const YamlDocument& document, std::string pointer) {
  static const YamlDocument::Spot kUnknown;
  while (true) {
    if (auto found = document.spots.find(pointer); found != document.spots.end())
      return found->second;
    if (pointer.empty()) return kUnknown;
    pointer.resize(pointer.rfind('/'));
  }
}

}  // namespace

std::string pointer_part(const std::string& key) {
  std::string out;
  for (const char c : key) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

const Location& YamlDocument::value_location(const std::string& pointer) const {
  return nearest_spot(*this, pointer).value;
}

const Location& YamlDocument::key_location(const std::string& pointer) const {
  return nearest_spot(*this, pointer).key;
}

Result<YamlDocument> parse_yaml(const std::string& text, const std::string& file) {
  if (text.size() > kMaxBytes)
    return Error{"the file is larger than 1 MiB", {file, 0, 0}, "a scenario is a page of YAML"};
  if (const std::size_t valid = utf8_length(text); valid < text.size())
    return Error{fmt::format("the file is not UTF-8 text: the byte 0x{:02x} is of no character",
                             static_cast<unsigned char>(text[valid])),
                 place_after(file, std::string_view(text).substr(0, valid)),
                 "save it as UTF-8: it is a YAML text file"};
  // yaml-cpp reports bad input by exceptions; they end here.
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    DocumentBuilder builder(file);
    const bool any = parser.HandleNextDocument(builder);
    YamlDocument document = builder.take();
    if (!any || document.value.is_null())
      return Error{
          "the file is empty",
          {file, 1, 1},
          "begin with \"lockstep: 1\" (a scenario), \"plan: 1\", \"machine: 1\" or \"sweep: 1\""};
    // A second document is an error, not ignored: "---" by mistake would hide half of the file.
    DocumentBuilder second(file);
    if (parser.HandleNextDocument(second))
      return Error{"the file holds more than one document", second.take().value_location(""),
                   "put each into a file of its own"};
    return document;
  } catch (const Refused& refused) {
    return refused.error;
  } catch (const YAML::Exception& e) {
    return Error{fmt::format("not valid YAML: {}", printable(e.msg)), location_of(file, e.mark),
                 "look at the quotes, brackets and blanks there, and in the line before"};
  }
}

}  // namespace lockstep
