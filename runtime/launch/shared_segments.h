// Shared memory segments that the ranks of a job create, and leave behind when they are killed:
// files of NCCL, CUDA and LibTorch in /dev/shm.
//
// Their names do not say which job they belong to. So a segment counts as the job's if it did not
// exist when the job began, belongs to this user, and was seen mapped or open in one of the job's
// processes. Segments that another job creates at the same time are never touched.
#pragma once

#include <sys/types.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace lockstep::runtime {

class SharedSegments {
 public:
  // Construct it before the job begins.
  explicit SharedSegments(std::string folder = "/dev/shm");

  // Notes which of the new segments these processes have. Without new segments this costs one
  // directory listing. Each new segment is looked for a few dozen times, or without limit if
  // `closely`. Call it now and then, and `closely` before the processes are ended.
  void look(const std::vector<pid_t>& processes, bool closely = false);

  // Removes the job's segments, once none of its processes runs. Returns their names.
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
  std::map<std::string, Segment> known_;  // new segments, by name
};

}  // namespace lockstep::runtime
