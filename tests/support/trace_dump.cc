#include "tests/support/trace_dump.h"

#include <algorithm>
#include <cstddef>
#include <iomanip>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep {

namespace {

class Dumper {
 public:
  Dumper(const trace::RankTrace& trace, const trace::Tables& tables, bool with_seq)
      : trace_(trace), tables_(tables), with_seq_(with_seq) {
    out_ << std::setprecision(17);
  }

  std::string dump() {
    out_ << "rank " << trace_.rank.value << " of " << trace_.world_size
         << " backend=" << trace_.backend << " host=" << trace_.host << " gpu=" << trace_.gpu
         << " program=" << trace_.program << " pid=" << trace_.pid << " dropped=" << trace_.dropped
         << " semantics=" << static_cast<int>(trace_.semantics)
         << " end=" << static_cast<int>(trace_.end) << " damaged=" << trace_.damaged_count << "\n";
    // The order of those that were not recorded as they were created means nothing.
    std::vector<std::string> groups;
    for (const auto& group : trace_.groups) {
      std::string& line = groups.emplace_back();
      line = "group " + tables_.str(group.group) + " (" + tables_.str(group.desc) + "):";
      for (const trace::Rank rank : group.ranks) line += " " + std::to_string(rank.value);
    }
    const std::size_t ordered = std::min<std::size_t>(trace_.created_in_order, groups.size());
    std::sort(groups.begin() + static_cast<std::ptrdiff_t>(ordered), groups.end());
    for (const std::string& line : groups) out_ << line << "\n";
    if (with_seq_) {
      for (const auto& [group, seq] : trace_.first_seq) {
        out_ << "first seq of " << tables_.str(group) << ": " << seq << "\n";
      }
    }
    for (const trace::Event& event : trace_.events) {
      out_ << "t=" << event.time << " ";
      write(event);
      out_ << "\n";
    }
    for (const trace::Call& call : trace_.calls) write(call);
    return out_.str();
  }

 private:
  void write(const trace::Event& event) {
    switch (event.kind) {
      case trace::EventKind::exception:
        return write(trace_.exceptions.at(event.index));
      case trace::EventKind::step:
        return write(trace_.steps.at(event.index));
      case trace::EventKind::state:
        return write(trace_.states.at(event.index));
      case trace::EventKind::data: {
        const trace::DataMark& mark = trace_.data.at(event.index);
        out_ << "data " << mark.n;
        return list(" indices", mark.indices);
      }
      case trace::EventKind::modality: {
        const trace::ModalityMark& mark = trace_.modalities.at(event.index);
        out_ << "modality " << mark.n;
        return names(" has", mark.has);
      }
      case trace::EventKind::span: {
        const trace::SpanMark& mark = trace_.spans[event.index];
        out_ << "span " << tables_.str(mark.name) << " stream=" << tables_.str(mark.stream)
             << " dur=" << mark.duration;
        return;
      }
      default:
        out_ << "event " << static_cast<int>(event.kind) << " of call "
             << trace_.calls[event.index].id;
    }
  }

  void write(const trace::ExceptionMark& mark) {
    out_ << "exception " << mark.what;
    if (mark.call) out_ << " of call " << trace_.calls[*mark.call].id;
  }
  void write(const trace::StepMark& mark) {
    out_ << "step " << mark.n;
    if (mark.loss) out_ << " loss=" << *mark.loss;
    if (mark.samples) out_ << " samples=" << *mark.samples;
  }
  void write(const trace::StateMark& mark) {
    out_ << "state " << mark.n << " " << tables_.str(mark.name);
    if (mark.hash) out_ << " hash=" << *mark.hash;
    if (mark.norm) out_ << " norm=" << *mark.norm;
    ints(" shape", mark.shape);
    out_ << " dtype=" << tables_.str(mark.dtype) << " kind=" << static_cast<int>(mark.kind)
         << " when=" << static_cast<int>(mark.when) << " sharded=" << mark.sharded;
    list(" sketch", mark.sketch);
  }
  void write(const trace::Call& call) {
    const trace::Signature& s = tables_.signatures[call.signature];
    out_ << "call " << call.id << " " << trace::op_name(s.op) << "/" << tables_.str(s.other_op)
         << " in " << tables_.str(call.group);
    if (with_seq_) out_ << " seq=" << call.seq;
    ints(" in", s.in);
    ints(" out", s.out);
    out_ << " elements=" << s.in_elements << "/" << s.out_elements;
    names(" dtypes", s.dtypes);
    out_ << " redop=" << tables_.str(s.redop) << " root=" << s.root << " count=" << s.count
         << " mode=" << tables_.str(s.mode);
    ints(" splits_in", s.splits_in);
    ints(" splits_out", s.splits_out);
    names(" what", call.what);
    out_ << " at=" << tables_.str(call.at) << " tag=" << tables_.str(call.tag)
         << " stream=" << tables_.str(call.stream) << " step=" << call.step
         << " peer=" << call.peer.value << " ptag=" << call.ptag << " coalesced=" << call.coalesced
         << " thread=" << call.thread << " flags=" << int{call.flags};
    if (call.values != 0) {
      const trace::CallValues& values = trace_.values.at(call.values - 1);
      if (values.hash) out_ << " hash=" << *values.hash;
      list(" sketch", values.sketch);
      out_ << " from=" << values.from << " fromtag=" << values.fromtag;
    }
    out_ << "\n";
  }

  template <class List>
  void list(std::string_view label, const List& items) {
    out_ << label << "=[";
    for (const auto& item : items) out_ << item << ",";
    out_ << "]";
  }
  void ints(std::string_view label, trace::IntListId id) { list(label, tables_.int_lists[id]); }
  void names(std::string_view label, trace::NameListId id) { list(label, tables_.names(id)); }

  const trace::RankTrace& trace_;
  const trace::Tables& tables_;
  bool with_seq_;
  std::ostringstream out_;
};

}  // namespace

std::string dump(const trace::RankTrace& trace, const trace::Tables& tables) {
  return Dumper(trace, tables, true).dump();
}

std::string dump_without_seq(const trace::RankTrace& trace, const trace::Tables& tables) {
  return Dumper(trace, tables, false).dump();
}

}  // namespace lockstep
