#include "trace/formats/chakra/nodes.h"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep::trace {

namespace {

template <class Member, std::size_t kCount>
Member* member_of(
    ChakraNode& node, std::string_view attribute,
    const std::array<std::pair<std::string_view, Member ChakraNode::*>, kCount>& all) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.first == attribute; });
  return found == all.end() ? nullptr : &(node.*found->second);
}

using Number = std::optional<std::int64_t>;

constexpr std::array<std::pair<std::string_view, Number ChakraNode::*>, 8> kNumbers = {
    {{"comm_type", &ChakraNode::comm_type},
     {"comm_size", &ChakraNode::comm_size},
     {"comm_src", &ChakraNode::src},
     {"comm_dst", &ChakraNode::dst},
     {"comm_tag", &ChakraNode::tag},
     {"stream", &ChakraNode::stream},
     {kChakraRoot, &ChakraNode::root},
     {kChakraOutSize, &ChakraNode::out_size}}};

constexpr std::array<std::pair<std::string_view, std::string ChakraNode::*>, 3> kTexts = {
    {{"pg_name", &ChakraNode::group},
     {kChakraOp, &ChakraNode::op},
     {kChakraRedop, &ChakraNode::redop}}};

}  // namespace

Number* number_of(ChakraNode& node, std::string_view attribute) {
  return member_of(node, attribute, kNumbers);
}

std::string* text_of(ChakraNode& node, std::string_view attribute) {
  return member_of(node, attribute, kTexts);
}

}  // namespace lockstep::trace
