// The segments of shared memory that the ranks of a job make, and leave behind when they are
// killed: NCCL's, CUDA's and LibTorch's files in /dev/shm.
//
// Their names do not tell whose they are. So a segment is a job's if it was not there when the job
// began, is this user's, and one of the job's processes was seen to have it mapped or open. What
// another job makes at the same time is never touched.
#pragma once

#include <sys/types.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace lockstep::runtime {

class SharedSegments {
 public:
  // Before the job begins.
  explicit SharedSegments(std::string folder = "/dev/shm");

  // Notes what these processes have of the segments that are new. Where nothing is new this costs a
  // listing of the folder; each new segment is looked for a few dozen times, unless `closely`: to
  // be called now and then, and closely before the processes are ended.
  void look(const std::vector<pid_t>& processes, bool closely = false);

  // Removes those that are the job's, once none of its processes runs. Returns their names.
  std::vector<std::string> remove();

 private:
  struct Segment {
    dev_t device = 0;
    ino_t inode = 0;
    int looks = 0;
    bool ours = false;
  };
  std::map<std::string, Segment> listed() const;

  std::string folder_;
  std::set<std::string> before_;
  std::map<std::string, Segment> known_;  // those that came since, by name
};

}  // namespace lockstep::runtime
