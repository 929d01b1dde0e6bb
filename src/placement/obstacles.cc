#include "placement/obstacles.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/module_path.h"
#include "ir/walk.h"

namespace epweave {
namespace {

constexpr std::size_t kListed = 8;

}  // namespace

void Obstacles::add(NodeId node, const PassError& error) {
  behind_.insert(node);
  nodes_.push_back(node);
  errors_.push_back(error);
}

bool Obstacles::is_behind_one(NodeId id) {
  if (nodes_.empty()) return false;
  bool is_behind = false;
  for_each_input(*graph_.context, graph_.step().nodes[id],
                 [&](NodeId input) { is_behind = is_behind || behind_.contains(input); });
  if (is_behind) behind_.insert(id);
  return is_behind;
}

void Obstacles::require_none() const {
  if (errors_.empty()) return;
  const PassError& first = errors_.front();
  // Layers are alike: one of each kind.
  std::vector<std::string> kinds;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = graph_.step().nodes[nodes_[i]];
    const std::string path = node.module ? generic_module(graph_.text(node.module)) : "no module";
    std::string kind =
        fmt::format("{} in {}{}{}", graph_.text(node.target), path, node.is_backward() ? " (backward)" : "",
                    errors_[i].id() == first.id() ? "" : fmt::format(" [{}]", errors_[i].id()));
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(std::move(kind));
  }
  std::string problem = first.problem();
  for (std::size_t i = 1; i < kinds.size() && i <= kListed; ++i)
    problem += fmt::format("{}{}", i == 1 ? "; nor can " : ", ", kinds[i]);
  if (kinds.size() > kListed + 1) problem += fmt::format(" and {} more", kinds.size() - kListed - 1);
  throw PassError(first.id(), std::move(problem), first.site(), first.remedy());
}

}  // namespace epweave
