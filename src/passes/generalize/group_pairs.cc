#include "passes/generalize/group_pairs.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/listed_groups.h"

namespace epweave {
namespace {

const ProcessGroup* find_row(const Graph& graph, StringId name) {
  for (const ProcessGroup& row : graph.groups)
    if (row.name == name) return &row;
  return nullptr;
}

}  // namespace

std::optional<std::string> GroupPairs::pair(const std::vector<Arg>& names) {
  GroupRows rows;
  for (std::size_t g = 0; g < names.size(); ++g) rows.push_back(find_row(job_.graphs[g], names[g].as_name()));
  if (std::ranges::find(rows, nullptr) != rows.end()) return "the group is not in the table";
  for (std::size_t g = 1; g < rows.size(); ++g) {
    if (auto why = why_no_axis(rows, g)) return why;
    if (auto why = why_other_group(rows, g)) return why;
  }
  for (std::size_t g = 1; g < rows.size(); ++g) {
    names_.emplace(std::pair(g, rows[0]->name), rows[g]->name);
    first_names_.emplace(std::pair(g, rows[g]->name), rows[0]->name);
  }
  return std::nullopt;
}

std::optional<std::string> GroupPairs::why_no_axis(const GroupRows& rows, std::size_t g) const {
  const auto rule = find_group_rule(rows[0]->ranks, job_.size());
  const bool holds_rank = std::ranges::find(rows[g]->ranks, job_.ranks[g]) != rows[g]->ranks.end();
  const bool is_of_axis =
      rule ? rule->members(job_.ranks[g]) == rows[g]->ranks : rows[g]->ranks.size() == rows[0]->ranks.size();
  if (holds_rank && is_of_axis) return std::nullopt;
  return "the groups are not those of one axis";
}

std::optional<std::string> GroupPairs::why_other_group(const GroupRows& rows, std::size_t g) const {
  const Context& context = job_.context();
  const Rank first = job_.ranks[0], here = job_.ranks[g];
  if (const auto known = names_.find({g, rows[0]->name}); known != names_.end()) {
    if (known->second == rows[g]->name) return std::nullopt;
    return fmt::format("rank {}'s group {} has two names on rank {}: {} here, {} before", first,
                       context.text(rows[0]->name), here, context.text(rows[g]->name),
                       context.text(known->second));
  }
  for (std::size_t other = 0; other < g; ++other)
    if (rows[other]->ranks == rows[g]->ranks && !is_one_communicator(rows, other, g))
      return fmt::format("group {} of rank {} and {} of rank {} are two groups of the same ranks",
                         context.text(rows[other]->name), job_.ranks[other], context.text(rows[g]->name),
                         here);
  if (const auto known = first_names_.find({g, rows[g]->name}); known != first_names_.end())
    return fmt::format("two groups of rank {}, {} and before {}, have one name on rank {}, {}", first,
                       context.text(rows[0]->name), context.text(known->second), here,
                       context.text(rows[g]->name));
  return std::nullopt;
}

// Of two rows with the same members. Ranks that name groups apart pair the k-th with these members,
// as verify_ranks does.
bool GroupPairs::is_one_communicator(const GroupRows& rows, std::size_t a, std::size_t b) const {
  if (rows[a]->name == rows[b]->name) return true;
  const auto has = [&](std::size_t g, const ProcessGroup& row) {
    const ProcessGroup* same = find_row(job_.graphs[g], row.name);
    return same != nullptr && same->ranks == row.ranks;
  };
  if (has(a, *rows[b]) || has(b, *rows[a])) return false;
  const auto count_before = [&](std::size_t g) {
    return std::count_if(job_.graphs[g].groups.data(), rows[g],
                         [&](const ProcessGroup& row) { return row.ranks == rows[g]->ranks; });
  };
  return count_before(a) == count_before(b);
}

std::string GroupPairs::print(StringId name) const {
  const Context& context = job_.context();
  const ProcessGroup& group = *find_row(job_.graphs[0], name);
  if (group.axes && !group.axes->empty()) return std::string(context.text(group.axes->front()));
  const std::string_view description = context.text(group.description);
  return std::string(description.starts_with("mesh_") ? description.substr(5) : description);
}

std::optional<Arg> GroupPairs::list() const {
  if (job_.graphs.size() == 1) return std::nullopt;  // as it says itself
  Context& context = job_.context();
  std::vector<Arg> entries;
  for (const ProcessGroup& base : job_.graphs[0].groups) {
    std::vector<std::pair<std::vector<Rank>, StringId>> rows;
    for (const auto& [name, ranks] : find_counterparts(base)) rows.emplace_back(ranks, name);
    if (rows.empty()) continue;
    std::ranges::sort(rows, {}, [](const auto& row) { return row.first; });
    std::vector<Arg> list;
    for (const auto& [ranks, name] : rows) {
      std::vector<Arg> members;
      for (Rank rank : ranks) members.push_back(Arg::integer(rank));
      const Arg pair[] = {Arg::text(name), context.args.intern_tree(ArgKind::kList, members)};
      list.push_back(context.args.intern_tree(ArgKind::kList, pair));
    }
    entries.push_back(Arg::text(base.name));
    entries.push_back(context.args.intern_tree(ArgKind::kList, list));
  }
  if (entries.empty()) return std::nullopt;
  return context.args.intern_tree(ArgKind::kDict, entries);
}

// The members of what other ranks have for it under another name, the given ones and those of which
// a given graph says it.
std::map<StringId, std::vector<Rank>> GroupPairs::find_counterparts(const ProcessGroup& base) const {
  std::map<StringId, std::vector<Rank>> found;
  const auto row_on = [&](std::size_t g) { return g == 0 ? &base : counterpart(base, g); };
  for (std::size_t g = 1; g < job_.graphs.size(); ++g)
    if (const ProcessGroup* row = row_on(g); row != nullptr && row->name != base.name)
      found.emplace(row->name, row->ranks);
  for (std::size_t g = 0; g < job_.graphs.size(); ++g)
    if (const ProcessGroup* row = row_on(g))
      for (const GroupOnRank& other : list_recorded_groups(job_.graphs[g], row->name))
        if (other.name != base.name) found.emplace(other.name, other.ranks);
  return found;
}

// The row of another rank's table: what a launch names there, else the row in the same place with
// the same description.
const ProcessGroup* GroupPairs::counterpart(const ProcessGroup& base, std::size_t g) const {
  if (const auto known = names_.find({g, base.name}); known != names_.end())
    return find_row(job_.graphs[g], known->second);
  const auto at = static_cast<std::size_t>(&base - job_.graphs[0].groups.data());
  if (at >= job_.graphs[g].groups.size()) return nullptr;
  const ProcessGroup& row = job_.graphs[g].groups[at];
  if (first_names_.contains({g, row.name})) return nullptr;
  return row.description == base.description && row.ranks.size() == base.ranks.size() ? &row : nullptr;
}

}  // namespace epweave
