// What searches of libraries for their fastest algorithms found, kept for each user by GPU, library and problem, so
// that a second run need not search.
//
// A file a problem, written whole: several processes at once can only replace each other's findings.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "baselines/baseline.h"
#include "reports/run/case_id.h"

namespace noisefloor {

struct KeptSearch {
  Algorithms algorithms;
  std::string description;  // of the search that found them
  std::string lost = {};    // instead: it cost the process its device, in these words
};

class SearchCache {
 public:
  struct Key {
    std::string device;   // the GPU's name
    std::string version;  // of the library
    CaseId id;            // the baseline's
  };
  using Log = std::function<void(const std::string&)>;

  // `folder` need not be there; empty: nothing is kept beyond this process, which is said once.
  SearchCache(std::filesystem::path folder, Log log);

  // Of $XDG_CACHE_HOME/noisefloor/searches, else of $HOME/.cache; what goes wrong is said on standard error.
  static std::shared_ptr<SearchCache> of_user();

  // From now on only what this process finds is known.
  void search_again() { again_ = true; }
  // A file that cannot be used is as none; `log` is told.
  std::optional<KeptSearch> find(const Key& key);
  void keep(const Key& key, const KeptSearch& found);
  // The search, or what it found, cost the process its device: nobody is to try it again unasked.
  void refuse(const Key& key, const std::string& why);
  // It no longer holds, and will be searched for anew; `log` is told why.
  void forget(const Key& key, const std::string& why);

 private:
  void write(const std::filesystem::path& file, const Key& key, const KeptSearch& found);
  std::filesystem::path file_of(const Key& key) const;

  std::filesystem::path folder_;
  Log log_;
  bool again_ = false, said_ = false;
  std::map<std::string, KeptSearch> of_this_process_;  // by file
  std::set<std::string> forgotten_;
};

}  // namespace noisefloor
