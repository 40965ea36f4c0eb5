// A deliberate fault: a network that does not carry reduce-scatters from step 1 on, so that they
// never complete on any rank.
#include <chrono>
#include <utility>

#include "runtime/faults/faults.h"
#include "runtime/groups/forwarding_backend.h"
#include "runtime/record/recorder.h"

namespace lockstep::runtime {

namespace {

class StalledNetwork final : public ForwardingBackend {
 public:
  StalledNetwork(c10::intrusive_ptr<c10d::Backend> inner, Recorder& recorder)
      : ForwardingBackend(inner->getRank(), inner->getSize()),
        inner_(std::move(inner)),
        recorder_(recorder) {}

  const std::string getBackendName() const override { return inner_->getBackendName(); }
  void setTimeout(std::chrono::milliseconds timeout) override { inner_->setTimeout(timeout); }
  void abort() override { inner_->abort(); }
  void shutdown() override { inner_->shutdown(); }

 private:
  WorkPtr make(const BackendCall& call, const Forward& forward) override {
    const bool lost = call.op == trace::Op::reduce_scatter_tensor && recorder_.context().step >= 1;
    if (lost) return c10::make_intrusive<EndlessWork>();
    return forward.now(*inner_);
  }

  c10::intrusive_ptr<c10d::Backend> inner_;
  Recorder& recorder_;
};

}  // namespace

ProcessGroups::Transport transport_of(Fault fault, const ProcessGroups& groups,
                                      Recorder& recorder) {
  if (fault != Fault::stalled_network || groups.alone()) return {};
  return [&recorder](const ProcessGroups::Connect& connect) {
    return c10::make_intrusive<StalledNetwork>(connect(""), recorder);
  };
}

}  // namespace lockstep::runtime
