// How torch's packing of gathers names a dtype: by its position among the dtypes that torch has, by
// name. As of torch 2.15.
//
//   _pre_bucket_all_gather([%p], 4, bf16, [1], 0)      1 is bf16
#pragma once

#include <cstdint>
#include <optional>

#include "ir/types/type.h"

namespace epweave {

std::optional<DType> dtype_at_position(std::int64_t position);
std::optional<std::int64_t> position_of_dtype(DType dtype);  // the first of it

}  // namespace epweave
