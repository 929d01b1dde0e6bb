#include "passes/overlap_ep/overlap_ep_check.h"

#include <fmt/format.h>

#include "analysis/collectives.h"
#include "ir/walk.h"
#include "passes/overlap_ep/overlap_ep_refusal.h"

namespace epweave {
namespace {

std::string describe(const Graph& graph, const EpRegion& region) {
  return describe_region(graph, region.root, region.backward);
}

// Parts 0, 1, ... without a gap, two at least.
void check_parts(const Graph& graph, const EpRegion& region) {
  const std::string where = describe(graph, region);
  const EpPart& first = region.parts.front();
  if (region.parts.size() == 1)
    decline(graph, first.nodes.front(), {"part-missing", "chunk the region again"},
            fmt::format("{} has part {} only", where, first.part));
  for (std::size_t i = 0; i < region.parts.size(); ++i)
    if (region.parts[i].part != static_cast<std::int32_t>(i))
      decline(graph, region.parts[i].nodes.front(), {"part-missing", "chunk the region again"},
              fmt::format("{} has a part {} but no part {}", where, region.parts[i].part, i));
}

// That `part` exchanges tokens as the first part does.
void check_same_exchanges(const Graph& graph, const EpRegion& region, const EpPart& part) {
  const std::string where = describe(graph, region);
  const EpPart& first = region.parts.front();
  const auto &a = first.exchanges, &b = part.exchanges;
  if (a.empty() != b.empty()) {
    const EpPart &with = a.empty() ? part : first, &without = a.empty() ? first : part;
    decline(
        graph, with.exchanges.front(),
        {"exchanges-missing", "label the token exchanges of all parts with EP_token_exchange"},
        fmt::format("{} has token exchanges in part {} and none in part {}", where, with.part, without.part));
  }
  if (a.size() != b.size())
    decline(graph, a.size() > b.size() ? a.back() : b.back(),
            {"exchange-count", "label the token exchanges of all parts with EP_token_exchange"},
            fmt::format("{} has {} token exchanges in part {} and {} in part {}", where, a.size(), first.part,
                        b.size(), part.part));
  for (std::size_t k = 0; k < a.size(); ++k) {
    const Node &x = graph.step().nodes[a[k]], &y = graph.step().nodes[b[k]];
    if (x.ep.token_exchange != y.ep.token_exchange)
      decline(graph, a[k], {"exchange-labels", "the parts must exchange tokens in the same order"},
              fmt::format("{}: exchange {} is a {} in part {} and a {} in part {}", where, k,
                          graph.text(x.ep.token_exchange), first.part, graph.text(y.ep.token_exchange),
                          part.part));
  }
}

}  // namespace

std::vector<WaitLabel> ExchangeChecker::check(const EpRegion& region) {
  std::vector<WaitLabel> labels;
  for (const EpPart& part : region.parts) check_part(part, labels);
  if (labels.empty()) return labels;
  check_parts(graph_, region);
  for (const EpPart& part : region.parts) check_same_exchanges(graph_, region, part);
  return labels;
}

void ExchangeChecker::check_part(const EpPart& part, std::vector<WaitLabel>& labels) {
  ++current_part_;
  for (NodeId id : part.nodes) part_of_.at(id) = current_part_;
  for (const auto [id, node] : walk(body_, part.nodes)) {
    if (is_token_exchange(graph_, node)) {
      labels.push_back({find_wait(id), node.ep.token_exchange});
    } else if (node.ep.token_exchange && !waits_for_exchange(id)) {
      decline(graph_, id,
              {"label-misplaced", "only all-to-all launches may have the label EP_token_exchange"},
              fmt::format("has the label EP_token_exchange={} but is no token exchange of this region",
                          graph_.text(node.ep.token_exchange)));
    }
  }
}

bool ExchangeChecker::waits_for_exchange(NodeId id) const {
  const NodeId launch = find_waited_launch(*graph_.context, body_, id);
  return launch && is_in_part(launch) && is_token_exchange(graph_, body_.nodes[launch]);
}

NodeId ExchangeChecker::find_wait(NodeId launch) const {
  NodeId wait;
  int count = 0;
  for (NodeId user : users_[launch]) {
    if (!is_wait(body_.nodes[user]) || !is_in_part(user)) continue;
    wait = user;
    ++count;
  }
  if (count != 1)
    decline(graph_, launch, {"wait-count", "wait for each token exchange once, in the same part"},
            fmt::format("a token exchange with {} waits in its part, expected 1", count));
  return wait;
}

}  // namespace epweave
