#include "trace/formats/flight_recorder/json.h"

#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/text.h"
#include "trace/formats/flight_recorder/data_tree.h"
#include "trace/formats/json_scan.h"

namespace lockstep::trace {

namespace {

// Copies simdjson's tree into a DataTree.
class Converter {
 public:
  explicit Converter(DataTree& tree) : tree_(tree) {}

  // simdjson limits the depth of what it parses to 1024, and so of this recursion.
  DataTree::Value convert(simdjson::dom::element element) {
    switch (element.type()) {
      case simdjson::dom::element_type::ARRAY: {
        std::vector<DataTree::Value> items;
        for (const simdjson::dom::element item : simdjson::dom::array(element)) {
          items.push_back(convert(item));
        }
        const DataTree::Value list = tree_.list();
        tree_.append(list, items);
        return list;
      }
      case simdjson::dom::element_type::OBJECT: {
        std::vector<DataTree::Value> pairs;
        for (const auto& [key, value] : simdjson::dom::object(element)) {
          pairs.push_back(text(key));
          pairs.push_back(convert(value));
        }
        const DataTree::Value dict = tree_.dict();
        tree_.append(dict, pairs);
        return dict;
      }
      case simdjson::dom::element_type::INT64:
        return DataTree::integer(std::int64_t(element));
      case simdjson::dom::element_type::DOUBLE:
        return DataTree::real();
      case simdjson::dom::element_type::STRING:
        return text(std::string_view(element));
      case simdjson::dom::element_type::BOOL:
        return DataTree::boolean(bool(element));
      default:  // null, and integers beyond 63 bits
        return DataTree::none();
    }
  }

 private:
  // Equal strings get one number, as the pickle's memo does.
  DataTree::Value text(std::string_view s) {
    const auto found = known_.find(std::string(s));
    if (found != known_.end()) return found->second;
    const DataTree::Value value = tree_.copied_string(std::string(s));
    known_.emplace(s, value);
    return value;
  }

  DataTree& tree_;
  std::unordered_map<std::string, DataTree::Value> known_;
};

// Reads what is whole of a dump that is not valid JSON: the members of its object, and of those
// that are damaged their own members or elements.
//
// An entry is taken to end where the next one begins: by its brackets alone it would not end where
// one of them, or a quote, is damaged. PyTorch writes the keys of all entries in one order, so the
// first key of the first entry shows where others begin.
class PartsOfDump {
 public:
  explicit PartsOfDump(std::string_view bytes) : bytes_(bytes) {}

  // Whether there was one whole entry or group. O(bytes).
  bool read() {
    std::vector<DataTree::Value> members;
    JsonMembers top(bytes_);
    while (const auto member = top.next()) {
      const auto [value, end] = read_member(*member);
      if (value) {
        members.push_back(out_.tree.copied_string(std::string(member->key)));
        members.push_back(*value);
      }
      if (end == kNpos || end == member->begin) break;
      top.leave_at(end);
    }
    if (!top.ended()) {
      out_.damage = "the JSON is cut off or damaged from here on";
      out_.damage_at = at_;
    }
    out_.tree.root = out_.tree.dict();
    out_.tree.append(out_.tree.root, members);
    return usable_;
  }

  Pickle take() { return std::move(out_); }

 private:
  struct Part {
    std::optional<DataTree::Value> value;  // nothing: not valid
    std::size_t end;                       // one past it; npos: the text ends first
  };

  Part read_member(const JsonMembers::Member& member) {
    if (member.key == "entries") return read_entries(member.begin);
    const Part whole = read_value(member.begin, json_value_end(bytes_, member.begin));
    if (whole.value || !bytes_.substr(member.begin).starts_with('{')) return whole;
    return {read_groups(member.begin), kNpos};
  }

  // The groups of pg_config or pg_status before the damage. Those after it are not read: groups
  // and their numbers are matched by their order.
  DataTree::Value read_groups(std::size_t begin) {
    std::vector<DataTree::Value> pairs;
    JsonMembers groups(bytes_.substr(begin));
    while (const auto group = groups.next()) {
      const std::size_t at = begin + group->begin;
      const Part read = read_value(at, json_value_end(bytes_, at));
      if (!read.value) break;
      groups.leave_at(read.end - begin);
      pairs.push_back(out_.tree.copied_string(std::string(group->key)));
      pairs.push_back(*read.value);
    }
    usable_ = usable_ || !pairs.empty();
    const DataTree::Value dict = out_.tree.dict();
    out_.tree.append(dict, pairs);
    return dict;
  }

  Part read_entries(std::size_t begin) {
    if (!bytes_.substr(begin).starts_with('[')) {
      return {std::nullopt, json_value_end(bytes_, begin)};
    }
    std::vector<DataTree::Value> entries;
    const std::size_t end = read_elements(json_skip_blanks(bytes_, begin + 1), entries);
    const DataTree::Value list = out_.tree.list();
    out_.tree.append(list, entries);
    return {list, end};
  }

  // Reads the objects of a list of which the first begins at `at`; a damaged one becomes nothing.
  // Returns one past the list; npos where something else comes before its end.
  std::size_t read_elements(std::size_t at, std::vector<DataTree::Value>& elements) {
    const std::string_view beginning = object_beginning(at);
    while (bytes_.substr(at).starts_with('{')) {
      const std::size_t next =
          beginning.empty() ? kNpos : bytes_.find(beginning, at + beginning.size());
      const std::string_view until_next = bytes_.substr(0, next);
      const Part read = read_value(at, json_value_end(until_next, at));
      if (next == kNpos && (read.end == kNpos || read.end == at)) return kNpos;
      elements.push_back(read.value.value_or(DataTree::none()));
      usable_ = usable_ || read.value;
      const std::size_t after = read.value ? skip_comma(until_next, read.end) : next;
      if (next != kNpos && after != next) elements.push_back(DataTree::none());
      at = next != kNpos ? next : skip_comma(bytes_, read.end);
    }
    return bytes_.substr(at).starts_with(']') ? at + 1 : kNpos;
  }

  // `{"key"`: the object that begins at `at`, as far as its first key. Empty: it is none.
  std::string_view object_beginning(std::size_t at) const {
    const auto first = JsonMembers(bytes_.substr(at)).next();
    if (!first) return {};
    const char* const end = first->key.data() + first->key.size() + 1;
    return bytes_.substr(at, static_cast<std::size_t>(end - bytes_.data()) - at);
  }

  static std::size_t skip_comma(std::string_view text, std::size_t at) {
    at = json_skip_blanks(text, at);
    if (at < text.size() && text[at] == ',') at = json_skip_blanks(text, at + 1);
    return at;
  }

  Part read_value(std::size_t begin, std::size_t end) {
    at_ = begin;
    if (end == kNpos || end == begin) return {std::nullopt, end};
    simdjson::dom::element element;
    const simdjson::padded_string padded(bytes_.substr(begin, end - begin));
    if (parser_.parse(padded).get(element) != simdjson::SUCCESS) return {std::nullopt, end};
    return {convert_.convert(element), end};
  }

  std::string_view bytes_;
  std::size_t at_ = 0;  // where the part begins that was read last
  Pickle out_;
  Converter convert_{out_.tree};
  simdjson::dom::parser parser_;
  bool usable_ = false;
};

}  // namespace

bool looks_like_json_dump(std::string_view bytes) {
  constexpr std::size_t kLooked = 4096;
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || bytes[first] != '{') return false;
  // Two keys each, since others write JSON too: a dump begins with its entries, or with its groups.
  const std::string_view head = bytes.substr(0, kLooked);
  const auto has = [&](std::string_view key) { return head.find(key) != std::string_view::npos; };
  if (has("\"collective_seq_id\"")) return has("\"profiling_name\"") || has("\"entries\"");
  return has("\"pg_config\"") && (has("\"pg_status\"") || has("\"entries\""));
}

Result<Pickle> read_json_dump(std::string_view bytes, const std::string& file) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  const simdjson::padded_string padded(bytes);
  const auto error = parser.parse(padded).get(root);
  if (error == simdjson::SUCCESS) {
    Pickle out;
    out.tree.root = Converter(out.tree).convert(root);
    return out;
  }
  PartsOfDump parts(bytes);
  if (parts.read()) return parts.take();
  return Error{std::string("not readable as JSON: ") + simdjson::error_message(error),
               {file},
               "was the file copied while it was written?"};
}

}  // namespace lockstep::trace
