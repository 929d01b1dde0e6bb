#include "compare/storage_writers.h"

namespace epweave {

StorageWriters::StorageWriters(const Context& context, const Body& body)
    : effects_(context, body), begins_(body.nodes.size()), counts_(body.nodes.size()) {
  for (NodeId id : body.order) {
    begins_[id] = writers_.size();
    for (const StorageAccess& access : effects_.accesses_of(id)) {
      if (last_[access.storage]) writers_.push_back(last_[access.storage]);
      if (access.writes) last_.at(access.storage) = id;
    }
    counts_[id] = writers_.size() - begins_[id];
  }
}

}  // namespace epweave
