#include "kept_context.h"

namespace epweave::cli {

std::shared_ptr<Context> kept_context() {
  static const auto* const kept = new std::shared_ptr<Context>(std::make_shared<Context>());
  return *kept;
}

}  // namespace epweave::cli
