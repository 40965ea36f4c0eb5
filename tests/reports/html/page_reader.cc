#include "tests/reports/html/page_reader.h"

#include <algorithm>
#include <utility>

namespace lockstep::reports {
namespace {

const std::set<std::string> kVoid = {"!doctype", "meta"};
// An attribute that is not among these would be a mistake: style and on… are refused by the page's
// policy, src would load something.
const std::set<std::string> kAttributes = {
    "html",   "lang",    "charset", "http-equiv", "content",     "name",        "class",
    "id",     "href",    "role",    "tabindex",   "aria-label",  "aria-hidden", "width",
    "height", "viewBox", "x",       "y",          "rx",          "x1",          "y1",
    "x2",     "y2",      "d",       "points",     "text-anchor", "title",       "data-name"};

class Reader {
 public:
  explicit Reader(const std::string& markup) : markup_(markup) {}

  Page read() {
    while (at_ < markup_.size()) {
      const bool runs = !open_.empty() && open_.back().tag == "script";
      if (markup_[at_] == '<' && (!runs || markup_.compare(at_, 9, "</script>") == 0))
        tag();
      else
        characters();
    }
    if (!open_.empty()) error("never closed: " + open_.back().tag);
    for (const std::string& link : page_.links)
      if (link.starts_with("#") && !page_.ids.contains(link.substr(1)))
        error("a link to nothing: " + link);
    return std::move(page_);
  }

 private:
  struct Open {
    std::string tag;
    std::size_t index = 0;  // into page_.elements[tag]
  };

  void error(const std::string& message) {
    page_.errors.push_back(message + " (at byte " + std::to_string(at_) + ")");
  }

  void characters() {
    // A script ends at its end tag: what looks like markup in it is none.
    const bool runs = !open_.empty() && open_.back().tag == "script";
    const std::size_t end = std::min(markup_.find(runs ? "</script>" : "<", at_), markup_.size());
    const std::string raw = markup_.substr(at_, end - at_);
    const bool styles = !open_.empty() && (open_.back().tag == "style" || runs);
    for (const char c : {'>', '"', '\''})
      if (!styles && raw.find(c) != std::string::npos) error("not escaped: " + raw);
    check_references(raw, styles);
    const std::string text = styles ? "" : resolved(raw);
    const bool body = std::any_of(open_.begin(), open_.end(),
                                  [](const Open& open) { return open.tag == "body"; });
    if (body) page_.text += text;
    for (const Open& open : open_) page_.elements[open.tag][open.index] += text;
    at_ = end;
  }

  void check_references(const std::string& raw, bool styles) {
    for (std::size_t i = raw.find('&'); !styles && i != std::string::npos;
         i = raw.find('&', i + 1)) {
      const std::size_t semicolon = raw.find(';', i);
      if (semicolon == std::string::npos || semicolon - i > 8) error("a bare & in " + raw);
    }
  }

  void tag() {
    const std::size_t end = markup_.find('>', at_);
    if (end == std::string::npos) {
      error("a tag without an end");
      at_ = markup_.size();
      return;
    }
    std::string inside = markup_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    if (inside.starts_with("/")) return close(inside.substr(1));
    const bool closed = inside.ends_with("/");
    if (closed) inside.pop_back();
    const std::size_t space = std::min(inside.find(' '), inside.size());
    const std::string tag = inside.substr(0, space);
    std::vector<std::string>& same = page_.elements[tag];
    same.emplace_back();
    if (!closed && !kVoid.contains(tag)) open_.push_back({tag, same.size() - 1});
    attributes(inside.substr(space));
  }

  void close(const std::string& tag) {
    if (open_.empty() || open_.back().tag != tag) return error("closed without being open: " + tag);
    open_.pop_back();
  }

  void attributes(const std::string& text) {
    std::size_t i = 0;
    while ((i = text.find_first_not_of(' ', i)) != std::string::npos) {
      const std::size_t end = std::min(text.find_first_of("= ", i), text.size());
      const std::string name = text.substr(i, end - i);
      if (!kAttributes.contains(name)) error("an attribute that is not known: " + name);
      i = end;
      if (i == text.size() || text[i] == ' ') continue;
      if (text.compare(i, 2, "=\"") != 0) return error("not quoted: " + text);
      const std::size_t quote = text.find('"', i + 2);
      if (quote == std::string::npos) return error("a quote without an end: " + text);
      attribute(name, resolved(text.substr(i + 2, quote - i - 2)));
      i = quote + 1;
    }
  }

  void attribute(const std::string& name, const std::string& value) {
    if (name == "id" && !page_.ids.insert(value).second) error("an id twice: " + value);
    if (name == "href") page_.links.push_back(value);
    if (name == "aria-label") page_.labels.push_back(value);
  }

  const std::string& markup_;
  std::size_t at_ = 0;
  std::vector<Open> open_;
  Page page_;
};

}  // namespace

std::string resolved(const std::string& text) {
  static const std::vector<std::pair<std::string, std::string>> kReferences = {
      {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&apos;", "'"}, {"&amp;", "&"}};
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto known = std::find_if(kReferences.begin(), kReferences.end(), [&](const auto& one) {
      return text.compare(i, one.first.size(), one.first) == 0;
    });
    out += known == kReferences.end() ? text.substr(i, 1) : known->second;
    i += known == kReferences.end() ? 1 : known->first.size();
  }
  return out;
}

Page read_page(const std::string& markup) { return Reader(markup).read(); }

}  // namespace lockstep::reports
