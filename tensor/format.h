#pragma once

// fmt's formatters for what prints through a stream; its users link fmt.

#include <fmt/ostream.h>

#include "dtype.h"
#include "layout.h"
#include "tensor.h"

template <>
struct fmt::formatter<heed::DType> : fmt::ostream_formatter {};
template <>
struct fmt::formatter<heed::Dims> : fmt::ostream_formatter {};
template <>
struct fmt::formatter<heed::Tensor> : fmt::ostream_formatter {};
