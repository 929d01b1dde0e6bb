// The name that was probably meant, for messages about one that is not known.
//
//   nearest_name("chnk", {"chunk", "dce"})     "chunk"
#pragma once

#include <string_view>
#include <vector>

namespace epweave {

// The known name nearest to `name`, or "" if none is near.
std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& known);

}  // namespace epweave
