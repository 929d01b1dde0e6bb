// Devices of ranks: one rank calls cuda:1 what another one calls cuda:0.
#pragma once

#include <map>

#include "ir/graph.h"

namespace epweave {

// The first device that the type names; none: it names none.
StringId find_device(const Context& context, TypeId type);

// How a rank's graph calls the devices of another one's: each by one name, of the same kind.
class RankDevices {
 public:
  explicit RankDevices(Context& context) : context_(&context) {}

  // Whether the rank's `here` can be what is `other` there, as far as was asked so far.
  bool pair(StringId other, StringId here);
  // The rank's type with the names that devices have in `other`, a type of that graph; none where
  // they cannot be these devices.
  TypeId rename(TypeId here, TypeId other);

  // What the rank calls each device that was paired, by the other's name.
  const std::map<StringId, StringId>& names() const { return here_of_; }

 private:
  Context* context_;
  std::map<StringId, StringId> here_of_, other_of_;
};

// The graph with other names of devices, by those that it has. Calls of the step that name one in
// their arguments get the record.
void rename_devices(Graph& graph, const std::map<StringId, StringId>& names, const Provenance& record);

}  // namespace epweave
