#pragma once

// What the kernel tests share: layouts to try, references, distances in units of the last place.

#include <gtest/gtest.h>

#include <heed/tensor/kernels/simd.h>
#include <heed/tensor/layout.h>
#include <heed/tensor/parallel.h>

#include <hwy/targets.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace heed::test {

/// Runs `body` once for every instruction set that was compiled and that this CPU has.
template <class F>
void for_each_target(F body) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(std::string("target ") + hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

/// Error of `got` in units of the last place of the true value; huge when only one of them is finite or NaN.
template <class T>
double ulps(T got, long double want) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : 1e30;
  const T rounded = static_cast<T>(want);
  if (std::isinf(rounded) && !std::isinf(got) && std::abs(got) == std::numeric_limits<T>::max()) return 1;
  if (std::isinf(rounded) || std::isinf(got)) return rounded == got ? 0 : 1e30;
  int exponent = std::numeric_limits<T>::min_exponent;
  if (rounded != 0) std::frexp(rounded, &exponent);
  exponent = std::max(exponent, std::numeric_limits<T>::min_exponent);
  return static_cast<double>(std::abs(static_cast<long double>(got) - want) / std::ldexp(1.0L, exponent - std::numeric_limits<T>::digits));
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Strides over a shape, and how many elements they reach.
struct View {
  std::string name;
  Dims shape, strides;
  Index elements = 0;

  View(std::string what, const Dims& sizes, const Dims& steps) : name(std::move(what)), shape(sizes), strides(steps) {
    elements = 1;
    for (std::size_t d = 0; d < shape.size(); ++d) elements += std::max<Index>(shape[d] - 1, 0) * strides[d];
  }
  /// Where element `flat`, counted in row-major order, lies.
  Index at(Index flat) const {
    Index offset = 0;
    for (std::size_t d = shape.size(); d-- > 0; flat /= shape[d]) offset += flat % shape[d] * strides[d];
    return offset;
  }
};

/// Row-major, transposed, with gaps, and with repeats.
inline std::vector<View> views_of(const Dims& shape) {
  const std::size_t rank = shape.size();
  std::vector<View> views{{"row-major", shape, detail::row_major_strides(shape)}};
  const auto add = [&](const char* name, auto change) {
    Dims strides = detail::row_major_strides(shape);
    change(strides);
    views.emplace_back(name, shape, strides);
  };
  if (rank == 0) return views;
  add("every other element", [&](Dims& s) {
    for (Index& stride : s) stride *= 2;
  });
  add("one element", [&](Dims& s) { s = Dims::filled(rank, 0); });
  if (rank == 1) return views;
  add("column-major", [&](Dims& s) {
    Index stride = 1;
    for (std::size_t d = 0; d < rank; ++d) s[d] = stride, stride *= std::max<Index>(shape[d], 1);
  });
  add("last two swapped", [&](Dims& s) { s[rank - 1] = std::max<Index>(shape[rank - 2], 1), s[rank - 2] = 1; });
  add("rows with gaps", [&](Dims& s) {
    for (std::size_t d = 0; d + 1 < rank; ++d) s[d] += s[d] / std::max<Index>(shape[rank - 1], 1) * 3;
  });
  add("one row", [&](Dims& s) {
    for (std::size_t d = 0; d + 1 < rank; ++d) s[d] = 0;
  });
  add("one column", [&](Dims& s) { s[rank - 1] = 0; });
  add("first repeated", [&](Dims& s) { s[0] = 0; });
  return views;
}

inline std::vector<Dims> shapes() {
  return {{}, {0}, {1}, {2, 0, 3}, {3}, {16}, {37}, {5, 7}, {9, 1, 33}, {1, 1}, {2, 3, 4, 5}, {70, 65}, {2, 1, 3, 1, 17}, {1, 2, 1, 3, 1, 2, 1, 2}};
}

template <class T>
std::vector<T> random_values(Index n, double low, double high, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<T> values(static_cast<std::size_t>(n));
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, Index>) {
    std::uniform_int_distribution<Index> draw(static_cast<Index>(low), static_cast<Index>(high));
    for (auto&& v : values) v = static_cast<T>(draw(generator));
  } else {
    std::uniform_real_distribution<double> draw(low, high);
    for (T& v : values) v = static_cast<T>(draw(generator));
  }
  return values;
}

/// A block of exactly n elements, so that sanitizers see a step past its end; std::vector<bool> has no addresses.
template <class T>
class Block {
 public:
  explicit Block(Index n) : size_(n), data_(new T[static_cast<std::size_t>(n)]()) {}
  explicit Block(const std::vector<T>& values) : Block(static_cast<Index>(values.size())) { std::copy(values.begin(), values.end(), begin()); }
  Block(const Block& other) : Block(other.size_) { std::copy(other.begin(), other.end(), begin()); }
  Block& operator=(const Block&) = delete;
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  Index size() const { return size_; }
  T& operator[](Index i) { return data_[static_cast<std::size_t>(i)]; }
  const T& operator[](Index i) const { return data_[static_cast<std::size_t>(i)]; }
  bool same_bits(const Block& other) const {
    return size_ == other.size_ && (size_ == 0 || std::memcmp(data(), other.data(), static_cast<std::size_t>(size_) * sizeof(T)) == 0);
  }

 private:
  Index size_;
  std::unique_ptr<T[]> data_;
};

template <class T>
Block<T> random_block(Index n, double low, double high, unsigned seed) {
  return Block<T>(random_values<T>(n, low, high, seed));
}

/// Whether `make()`, which returns a Block, gives the same bits with 1, 2 and 4 threads.
template <class F>
void expect_same_bits_for_all_thread_counts(F make) {
  set_num_threads(1);
  const auto want = make();
  for (const int threads : {2, 4}) {
    set_num_threads(threads);
    EXPECT_TRUE(make().same_bits(want)) << threads << " threads";
  }
  set_num_threads(1);
}

}  // namespace heed::test
