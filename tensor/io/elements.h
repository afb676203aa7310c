#pragma once

// Private: elements as files hold them, and tensors made from them.

#include <optional>

#include "../tensor.h"
#include "file.h"

namespace heed::detail {

/// Element types found in files. Floats below f32 are read as f32, whole numbers below i64 as i64.
enum class Element : std::uint8_t { f16, bf16, f32, f64, i8, u8, i16, i32, i64, boolean };
enum class ByteOrder { little, big };

std::size_t size_of(Element);
/// What it becomes in a tensor.
DType dtype_of(Element);

/// Bytes in a file of that many elements; nothing when the sizes are beyond what a tensor can have, also where one of them is 0.
std::optional<std::uint64_t> byte_count(std::span<const std::uint64_t> shape, Element);

/// "(2, 3)", for sizes that no Dims can hold.
std::string shape_text(std::span<const std::uint64_t> shape);

/// The row-major elements from `offset` on, which lie inside of the source. `what` names the tensor in an error text: IoError for a boolean
/// that is neither 0 nor 1.
Tensor read_tensor(Source&, std::uint64_t offset, Element, ByteOrder, const Dims& shape, const std::string& what);

/// The elements in logical order, little-endian.
void write_elements(Sink&, const Tensor&);

// The bits of a float, exact for subnormals, infinities and NaN (payloads kept).
std::uint32_t widen_f16(std::uint16_t);
constexpr std::uint32_t widen_bf16(std::uint16_t bits) { return std::uint32_t{bits} << 16; }

}  // namespace heed::detail
