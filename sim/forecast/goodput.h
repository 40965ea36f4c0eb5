// Goodput: which share of the time a job makes progress while GPUs fail.
//
// Failures come independently at a constant rate, so the time between two of the job's is
// exponential with mean M. The job saves a checkpoint of cost d after every w seconds of work. A
// failure loses the work since the last checkpoint; restarting takes r, during which it may fail
// again. Then an interval of work takes on average (Daly, Future Gener. Comput. Syst. 22(3), 2006,
// section 3)
//
//   M e^(r/M) (e^((w + d)/M) - 1)
//
// and the goodput is w over that. Young (Commun. ACM 17(9), 1974) and Daly give the best w by
// formula; best_interval() finds it to a millionth, and tests hold it against both and against a
// simulation of single failures.
//
// Not modelled: failures that come together (a rack, a switch), and hangs that take long to notice;
// count the time until they are noticed as part of the restart.
#pragma once

namespace lockstep::sim {

// All in seconds, above 0; `restart` and `checkpoint` may be 0.
struct FailureModel {
  double mtbf = 0;        // of the whole job: that of a GPU over the number of GPUs
  double checkpoint = 0;  // for which saving one stops the job
  double restart = 0;     // from a failure to the first step after it, and until it is noticed
};

// The share of the time that is work, with a checkpoint after every `interval` seconds of work. 0
// where failures come faster than an interval ends.
double goodput(const FailureModel& model, double interval);

// Young's: sqrt(2 d M). Daly's, of higher order; M where checkpoints cost more than 2 M.
double young_interval(const FailureModel& model);
double daly_interval(const FailureModel& model);

// The interval with the best goodput.
double best_interval(const FailureModel& model);

}  // namespace lockstep::sim
