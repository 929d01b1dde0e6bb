// Names under which a step takes what has a number for each token, where nothing else says so.
#pragma once

#include <array>
#include <string_view>

namespace epweave {

inline constexpr std::array<std::string_view, 5> kTokenInputs = {"tokens", "inputs", "input_ids", "labels",
                                                                 "extra_kwargs['positions']"};

}  // namespace epweave
