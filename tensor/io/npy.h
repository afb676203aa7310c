#pragma once

#include <filesystem>

#include "../tensor.h"

namespace heed {

/// The array in a NumPy file: versions 1.0, 2.0 and 3.0, either byte order, rows or columns first. f4, f8, i8 and b1 keep their type; f2 becomes
/// f32; i1, i2, i4 and u1 become i64. IoError for any other dtype (objects and structured types among them), a header that is not to the
/// letter, data missing or left over. Nothing larger than the file is allocated before it is known to hold the data.
Tensor load_npy(const std::filesystem::path&);

/// Writes version 1.0, rows first, a view in its logical order. The file appears complete or not at all. IoError.
void save_npy(const std::filesystem::path&, const Tensor&);

namespace detail {
// The same in memory.
Tensor read_npy(std::span<const std::byte> file);
std::vector<std::byte> write_npy(const Tensor&);
}  // namespace detail

}  // namespace heed
