// The name that was probably meant, for messages about one that is not known.
//
//   nearest_name("chnk", {"chunk", "dce"})                 "chunk"
//   nearest_name("wait", {"cat", "wait_tensor"})           "wait_tensor"
#pragma once

#include <string_view>
#include <vector>

namespace epweave {

// The known name nearest to `name`: with the fewest letters changed, less than half of them, else
// the shortest that holds it; "" if none does.
std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& known);

}  // namespace epweave
