#include "trace/formats/flight_recorder/json.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/text.h"
#include "trace/formats/log_lines.h"
#include "trace/trace_builder.h"

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
  if (const auto error = parser.parse(padded).get(root); error != simdjson::SUCCESS) {
    return Error{std::string("not readable as JSON: ") + simdjson::error_message(error),
                 {file},
                 "was the file copied while it was written?"};
  }
  Pickle out;
  out.tree.root = Converter(out.tree).convert(root);
  return out;
}

namespace {

constexpr std::string_view kHeading = "<h2>Rank ";

// Text of an HTML page with its escapes resolved, as Jinja writes them.
std::string unescaped(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, char>, 6> kEscapes = {{{"&#34;", '"'},
                                                                          {"&quot;", '"'},
                                                                          {"&#39;", '\''},
                                                                          {"&lt;", '<'},
                                                                          {"&gt;", '>'},
                                                                          {"&amp;", '&'}}};
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto known =
        text.front() != '&'
            ? kEscapes.end()
            : std::find_if(kEscapes.begin(), kEscapes.end(),
                           [&](const auto& escape) { return text.starts_with(escape.first); });
    out += known == kEscapes.end() ? text.front() : known->second;
    text.remove_prefix(known == kEscapes.end() ? 1 : known->first.size());
  }
  return out;
}

}  // namespace

bool looks_like_dump_page(std::string_view bytes) {
  constexpr std::size_t kLooked = std::size_t{64} << 10U;
  const std::string_view head = bytes.substr(0, kLooked);
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  if (first == kNpos || head[first] != '<') return false;
  const std::size_t rank = head.find(kHeading);
  return rank != kNpos && head.find("<pre>", rank) != kNpos &&
         (head.find("pg_config", rank) != kNpos || head.find("pg_status", rank) != kNpos);
}

std::vector<DumpOnPage> dumps_on_page(std::string_view bytes) {
  constexpr std::string_view kBegin = "<pre>";
  constexpr std::string_view kEnd = "</pre>";
  std::vector<DumpOnPage> out;
  for (std::size_t at = bytes.find(kHeading); at != kNpos;) {
    const std::size_t next = bytes.find(kHeading, at + kHeading.size());
    const std::string_view section = bytes.substr(at, next == kNpos ? kNpos : next - at);
    at = next;
    // <h2>Rank 3: node7:25999</h2> <pre>…</pre>, or "Failed to fetch …" before any <pre>.
    const auto rank = number_after(section.substr(0, 64), kHeading);
    const std::size_t begin = section.find(kBegin);
    const bool failed = section.substr(0, begin).find("Failed to fetch") != kNpos;
    if (!rank || !is_possible_rank(*rank, kMaxWorldSize) || begin == kNpos || failed) continue;
    const std::size_t end = section.find(kEnd, begin);
    DumpOnPage dump;
    dump.rank = Rank(static_cast<std::int32_t>(*rank));
    dump.whole = end != kNpos;
    dump.json = unescaped(
        section.substr(begin + kBegin.size(), end == kNpos ? kNpos : end - begin - kBegin.size()));
    const std::size_t colon = section.find(": ");
    const std::size_t close = section.find("</h2>");
    if (colon != kNpos && close != kNpos && colon + 2 < close && close - colon < 256) {
      dump.host = unescaped(section.substr(colon + 2, close - colon - 2));
    }
    out.push_back(std::move(dump));
  }
  return out;
}

}  // namespace lockstep::trace
