// One writer a run folder at a time.
#pragma once

#include <filesystem>

namespace noisefloor {

// Holds flock() on FOLDER/.lock, which goes with the process that holds it, however it ends: nothing is left to clean
// up. The file says who holds it (host, process), for the message of whoever comes second.
//
// On NFS Linux passes flock on to the server as a lock on the file's bytes, so it holds across machines. On a mount
// whose locks stay on each machine (`nolock`, `local_lock=`; Lustre's `localflock`) the writer's name stands in for it:
// there a folder that another machine's writer did not leave properly is refused until .lock is removed by hand. A file
// system that has no locks at all is refused.
class FolderLock {
 public:
  enum class Mode {
    writing,  // alone
    reading   // beside other readers; a folder without .lock, or one that cannot be written, is read unlocked
  };

  // The folder must exist. Throws std::runtime_error naming it, and who writes there.
  explicit FolderLock(std::filesystem::path folder, Mode mode = Mode::writing);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
  bool names_us_ = false;
};

// Whether locks on `folder` stay on this machine, by a file as /proc/self/mounts.
bool locks_stay_on_this_machine(const std::filesystem::path& mounts, const std::filesystem::path& folder);

}  // namespace noisefloor
