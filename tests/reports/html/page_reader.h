// Reads the markup of a report page strictly: every element is closed in its order, attributes are
// quoted and known, links lead to something. What browsers would repair is an error here.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace lockstep::reports {

struct Page {
  std::vector<std::string> errors;
  std::string text;                                          // of the body, references resolved
  std::map<std::string, std::vector<std::string>> elements;  // by tag: the text in each
  std::vector<std::string> links;                            // values of href
  std::vector<std::string> labels;  // of pictures, for those who do not see them
  std::set<std::string> ids;

  std::size_t count(const std::string& tag) const {
    const auto found = elements.find(tag);
    return found == elements.end() ? 0 : found->second.size();
  }
  std::vector<std::string> texts(const std::string& tag) const {
    const auto found = elements.find(tag);
    return found == elements.end() ? std::vector<std::string>() : found->second;
  }
};

Page read_page(const std::string& markup);

// `text` with character references replaced by what they stand for.
std::string resolved(const std::string& text);

}  // namespace lockstep::reports
