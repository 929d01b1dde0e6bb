// Bytes that are too many to hold at once, piece by piece: what makes them is called with a
// function that takes the next ones.
#pragma once

#include <functional>
#include <string_view>

namespace epweave {

using GiveBytes = std::function<void(std::string_view)>;
using ProduceBytes = std::function<void(const GiveBytes&)>;

}  // namespace epweave
