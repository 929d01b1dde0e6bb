// Which process group of one rank is which of another.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "passes/generalize/job.h"

namespace epweave {

// Names of the first rank's groups and another's are one to one, and one name is one communicator
// where ranks are members of one.
class GroupPairs {
 public:
  explicit GroupPairs(const RankJob& job) : job_(job) {}

  // Pairs what a call names on each rank, in the order of the given ones: the group of one axis on
  // each. Returns why they are not that, and then pairs nothing.
  std::optional<std::string> pair(const std::vector<Arg>& names);

  // The axis of the first rank's group, else its description.
  std::string print(StringId name) const;

  // Every group of the other ranks that a rule does not name: {"23": [["24", [1, 3]]]}. None where
  // all have one name, and of one graph.
  std::optional<Arg> list() const;

 private:
  using GroupRows = std::vector<const ProcessGroup*>;
  std::optional<std::string> why_no_axis(const GroupRows& rows, std::size_t g) const;
  std::optional<std::string> why_other_group(const GroupRows& rows, std::size_t g) const;
  bool is_one_communicator(const GroupRows& rows, std::size_t a, std::size_t b) const;
  const ProcessGroup* counterpart(const ProcessGroup& base, std::size_t g) const;
  std::map<StringId, std::vector<Rank>> find_counterparts(const ProcessGroup& base) const;

  const RankJob& job_;
  std::map<std::pair<std::size_t, StringId>, StringId> names_;        // of the first rank's on another
  std::map<std::pair<std::size_t, StringId>, StringId> first_names_;  // on the first rank, of another's
};

}  // namespace epweave
