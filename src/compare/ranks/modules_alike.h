// Modules that are alike: those of one place in each layer.
#pragma once

#include <string>
#include <string_view>

namespace epweave {

// One name for layers.0.norm and layers.1.norm. ffn.w1 and ffn.w2 are not alike: a model may divide
// them along two axes.
std::string name_of_modules_alike(std::string_view module);

}  // namespace epweave
