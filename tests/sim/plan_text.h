// Plans from the text of a file.
#pragma once

#include <string>

#include "base/documents/yaml_document.h"
#include "sim/multimodal/multimodal_plan.h"
#include "sim/transformer/plan_file.h"

namespace lockstep::sim {

inline Result<PlanFile> parse_plan(const std::string& text, const std::string& file) {
  const Result<YamlDocument> document = parse_yaml(text, file);
  return document ? read_plan(*document) : document.error();
}

// `manifest`: the text of the file that the plan names.
inline Result<MultimodalPlan> parse_multimodal_plan(const std::string& text,
                                                    const std::string& file,
                                                    const std::string& manifest) {
  const Result<YamlDocument> document = parse_yaml(text, file);
  return document ? read_multimodal_plan(*document, manifest) : document.error();
}

}  // namespace lockstep::sim
