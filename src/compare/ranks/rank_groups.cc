#include "compare/ranks/rank_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace epweave {

std::string print_members(const std::vector<std::uint32_t>& members) {
  if (members.size() <= 8) return fmt::format("[{}]", fmt::join(members, ", "));
  return fmt::format("[{}, {}, {}, ... {}]", members[0], members[1], members[2], members.back());
}

GroupMatcher::GroupMatcher(const std::vector<RankProgram>& programs) {
  for (const RankProgram& program : programs) {
    given_.insert(*program.rank);
    for (const RankGroup& group : program.groups) holders_[{group.members, group.name}].insert(*program.rank);
  }
}

std::pair<std::vector<std::uint32_t>, std::string> GroupMatcher::key_of(const RankProgram& program,
                                                                        std::size_t group) {
  const RankGroup& own = program.groups[group];
  const std::set<std::uint32_t>& holders = holders_[{own.members, own.name}];
  if (holders.size() == count_given(own.members)) return {own.members, own.name};
  const auto before = std::count_if(program.groups.begin(), program.groups.begin() + static_cast<long>(group),
                                    [&](const RankGroup& other) { return other.members == own.members; });
  return {own.members, fmt::format("#{}", before)};
}

std::size_t GroupMatcher::count_given(const std::vector<std::uint32_t>& members) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(members, [&](std::uint32_t member) { return given_.contains(member); }));
}

std::vector<RankProgram> spread_over_ranks(const RankProgram& program) {
  std::vector<std::uint8_t> is_used(program.groups.size());
  for (const RankLaunch& launch : program.calls->launches) is_used[launch.group] = 1;
  std::uint64_t world_size = std::max(program.world_size.value_or(1), 1U);
  for (std::size_t i = 0; i < program.groups.size(); ++i)
    for (std::uint32_t member : program.groups[i].members)
      if (is_used[i] != 0) world_size = std::max(world_size, std::uint64_t{member} + 1);
  if (world_size > kMostRanks)
    throw InputError(fmt::format("a world of {} ranks; at most {} are checked", world_size, kMostRanks));
  std::vector<RankProgram> programs(world_size, program);
  for (std::uint32_t rank = 0; rank < world_size; ++rank) {
    programs[rank].rank = rank;
    for (std::size_t i = 0; i < program.groups.size(); ++i) {
      if (is_used[i] == 0) continue;
      RankGroup& group = programs[rank].groups[i];
      auto members = translate_members(group.members, rank, static_cast<std::uint32_t>(world_size));
      if (!members)
        throw InputError(
            fmt::format("group {} {} does not say which ranks the other groups of its kind have, in "
                        "a world of {}; give one graph for each rank",
                        group.name, print_members(group.members), world_size));
      group.members = std::move(*members);
    }
  }
  return programs;
}

}  // namespace epweave
