#include "trace/evidence/output_streams.h"

#include <utility>

#include "base/text.h"
#include "trace/evidence/named_processes.h"

namespace lockstep::trace {

std::string_view OutputStreams::label_of(std::string_view text, Source source) {
  continue_traceback(text, source);
  for (const std::string_view opening :
       {ExceptionReader::kTraceback, ExceptionReader::kIgnored, ExceptionReader::kInThread}) {
    const std::size_t at = text.find(opening);
    if (at == kNpos) continue;
    labels_.learn(text, at);
    const bool is_box = text.substr(0, at).find("\xE2\x95\xAD") != kNpos;  // ╭
    if (opening == ExceptionReader::kTraceback && at > 0 && !is_box)
      opened_ = {{source.rank, std::string(source.host), std::string(text.substr(0, at))}};
    break;
  }
  return labels_.of(text);
}

// The line after the first one of a traceback shows what stands before all others, where the first
// one had a message in front:
//
//   (Worker pid=7) Exception in worker: Traceback (most recent call last):
//   (Worker pid=7)   File "train.py", line 12, in <module>
void OutputStreams::continue_traceback(std::string_view text, Source source) {
  if (!opened_ || opened_->rank != source.rank || opened_->host != source.host) return;
  // A line of another process, whose own label is known.
  const std::string_view known = labels_.of(text);
  if (!opened_->text.starts_with(known)) return;
  const std::string before = std::exchange(opened_, std::nullopt)->text;
  if (known == before) return;
  const std::size_t frame = text.find("  File \"");
  if (frame == kNpos || frame > TracebackLabels::kLongest) return;
  // What was taken for the label is none.
  if (streams_.contains({source.rank, std::string(source.host), before}))
    change(source, before, [](OutputStream& stream) { stream.exceptions = {}; });
  labels_.remove(before);
  labels_.add(text.substr(0, frame));
  change(source, text.substr(0, frame), [&](OutputStream& stream) {
    stream.exceptions.take(ExceptionReader::kTraceback);
    stream.who = place_named_by(before);
  });
}

}  // namespace lockstep::trace
