// The time line of each process group, as PyTorch's bucketer sees it: its launches and waits, all
// compute, and what hides its collectives, in the order of the step. Each event comes behind the
// one in front of it: what runs on one stream is done in the order of its launches.
//
//   group 0   g0  y  g1  w0  z  w1      group 1   y  h  z  v
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "passes/schedule/inductor_dependences.h"
#include "passes/schedule/inductor_facts.h"
#include "passes/schedule/inductor_order.h"

namespace epweave {

class InductorTimelines {
 public:
  // Adds the order of the events to `dependences`, which outlives this.
  InductorTimelines(const InductorFacts& facts, const InductorOrder& order, InductorDependences& dependences);

  // In the order of their first collectives.
  const std::vector<std::uint32_t>& groups() const { return groups_; }
  // What follows is about this group.
  void turn_to(std::uint32_t group);

  // Of the event that a node is, or belongs to.
  std::uint32_t position(Place node) const { return events_[event_[node]].position; }
  // Nodes of events behind that of `node`, in front of a position; and in front of it, behind one.
  template <class Visit>
  void visit_behind(Place node, std::uint32_t end, const Visit& visit) const {
    for (std::uint32_t e = events_[event_[node]].next; e != kNone && events_[e].position < end;
         e = events_[e].next)
      visit(events_[e].node);
  }
  template <class Visit>
  void visit_in_front(Place node, std::uint32_t end, const Visit& visit) const {
    for (std::uint32_t e = events_[event_[node]].previous; e != kNone && events_[e].position > end;
         e = events_[e].previous)
      visit(events_[e].node);
  }

  // The node's event leaves its line, with the order that holds because of it.
  struct TakenOut {
    Place node = kNoPlace;
    std::uint32_t previous = 0, next = 0;
  };
  TakenOut take_out(Place node);
  void put_back(const TakenOut& taken);

  // These belong to the event of `node` from here on.
  void join(Place node, std::initializer_list<Place> nodes);

 private:
  static constexpr std::uint32_t kNone = ~0U;
  struct Event {
    Place node = kNoPlace;
    std::uint32_t position = 0, previous = kNone, next = kNone;
  };

  void build(std::uint32_t group, const InductorFacts& facts, const InductorOrder& order);
  void link(std::uint32_t event, std::uint32_t previous, std::uint32_t next);

  InductorDependences& dependences_;
  std::vector<std::uint32_t> groups_;
  std::vector<Event> events_;          // of all groups
  std::vector<std::uint32_t> begins_;  // by position in groups_, and the end
  std::vector<std::uint32_t> event_;   // by place: of the group
};

}  // namespace epweave
