// The process groups of several ranks: which of them are one.
//
//   rank 0: group 35 [0, 1]     rank 1: group 36 [0, 1]     one group of two members, whatever each calls it
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compare/ranks/rank_program.h"

namespace epweave {

// "[0, 1]", "[0, 1, 2, ... 255]"
std::string print_members(const std::vector<std::uint32_t>& members);

// The programs of all ranks of a program that every rank runs, by moving its groups
// (translate_members). Throws InputError where that cannot be done.
std::vector<RankProgram> spread_over_ranks(const RankProgram& program);

// Finds which groups of different ranks are one: the same members and the same name; ranks that
// name groups apart pair the k-th with these members.
class GroupMatcher {
 public:
  explicit GroupMatcher(const std::vector<RankProgram>& programs);

  // Equal for groups that are one.
  std::pair<std::vector<std::uint32_t>, std::string> key_of(const RankProgram& program, std::size_t group);

 private:
  std::size_t count_given(const std::vector<std::uint32_t>& members) const;

  std::set<std::uint32_t> given_;
  std::map<std::pair<std::vector<std::uint32_t>, std::string>, std::set<std::uint32_t>> holders_;
};

}  // namespace epweave
