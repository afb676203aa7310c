#pragma once

#include <gtest/gtest.h>
#include <heed/tensor/tensor.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>

#include "../temporary_folder.h"

namespace heed::tests {

inline std::span<const std::byte> as_file(const std::string& bytes) { return std::as_bytes(std::span(bytes)); }

inline std::string as_string(const std::vector<std::byte>& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

/// The bytes of numbers as they lie in memory.
template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  std::string out;
  for (T v : values) {
    char raw[sizeof(T)];
    std::memcpy(raw, &v, sizeof v);
    out.append(raw, sizeof raw);
  }
  return out;
}

using test::TemporaryFolder;

inline void write_file(const std::filesystem::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// What a call throws, or "" when it does not throw an E.
template <class E, class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
  }
  return "";
}

}  // namespace heed::tests
