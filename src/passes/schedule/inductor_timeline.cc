#include "passes/schedule/inductor_timeline.h"

#include <algorithm>

namespace epweave {

InductorTimelines::InductorTimelines(const InductorFacts& facts, const InductorOrder& order,
                                     InductorDependences& dependences)
    : dependences_(dependences), event_(facts.roles.size(), kNone) {
  for (const InductorCollective& collective : facts.collectives)
    if (std::ranges::find(groups_, collective.group) == groups_.end()) groups_.push_back(collective.group);
  for (const std::uint32_t group : groups_) {
    begins_.push_back(static_cast<std::uint32_t>(events_.size()));
    build(group, facts, order);
  }
  begins_.push_back(static_cast<std::uint32_t>(events_.size()));
}

void InductorTimelines::build(std::uint32_t group, const InductorFacts& facts, const InductorOrder& order) {
  const auto begin = static_cast<std::uint32_t>(events_.size());
  std::vector<bool> hides(facts.roles.size());  // a collective of the group that was launched
  for (const Place node : order.scheduled) {
    const InductorRole role = facts.roles[node];
    const bool is_own = (role == InductorRole::kLaunch || role == InductorRole::kWait) &&
                        facts.collectives[facts.collective[node]].group == group;
    if (is_own && role == InductorRole::kLaunch)
      for (const Place by : order.hiding[facts.collective[node]].hidden_by) hides[by] = true;
    if (!is_own && role != InductorRole::kCompute && !hides[node]) continue;
    const auto event = static_cast<std::uint32_t>(events_.size());
    events_.push_back({.node = node, .position = event - begin});
    if (event == begin) continue;
    link(event, event - 1, kNone);
    dependences_.add(node, events_[event - 1].node);
  }
}

void InductorTimelines::turn_to(std::uint32_t group) {
  const auto at = static_cast<std::size_t>(std::ranges::find(groups_, group) - groups_.begin());
  std::ranges::fill(event_, kNone);
  for (std::uint32_t e = begins_[at]; e < begins_[at + 1]; ++e) event_[events_[e].node] = e;
}

void InductorTimelines::link(std::uint32_t event, std::uint32_t previous, std::uint32_t next) {
  if (previous != kNone) events_[previous].next = event;
  events_[event].previous = previous;
  if (next != kNone) events_[next].previous = event;
  events_[event].next = next;
}

InductorTimelines::TakenOut InductorTimelines::take_out(Place node) {
  Event& event = events_[event_[node]];
  const TakenOut taken{node, event.previous, event.next};
  if (event.previous != kNone) events_[event.previous].next = event.next;
  if (event.next != kNone) events_[event.next].previous = event.previous;
  event.previous = event.next = kNone;
  if (taken.previous != kNone) dependences_.remove(node, events_[taken.previous].node);
  if (taken.next != kNone) dependences_.remove(events_[taken.next].node, node);
  if (taken.previous != kNone && taken.next != kNone)
    dependences_.add(events_[taken.next].node, events_[taken.previous].node);
  return taken;
}

// As the reference has it: in the middle of a line, what follows is not put behind the node again.
void InductorTimelines::put_back(const TakenOut& taken) {
  link(event_[taken.node], taken.previous, taken.next);
  if (taken.previous != kNone) dependences_.add(taken.node, events_[taken.previous].node);
  if (taken.next != kNone && taken.previous == kNone) dependences_.add(events_[taken.next].node, taken.node);
  if (taken.previous != kNone && taken.next != kNone)
    dependences_.remove(events_[taken.next].node, events_[taken.previous].node);
}

void InductorTimelines::join(Place node, std::initializer_list<Place> nodes) {
  const std::uint32_t event = event_[node];
  for (const Place each : nodes) event_[each] = event;
}

}  // namespace epweave
