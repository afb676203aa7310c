#pragma once

#include <gtest/gtest.h>
#include <heed/tensor/factory.h>
#include <heed/tensor/tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace heed::test {

inline double epsilon(DType dtype) {
  return dtype == f32 ? static_cast<double>(std::numeric_limits<float>::epsilon()) : std::numeric_limits<double>::epsilon();
}

/// The largest magnitude among the finite elements, 0 without any.
inline double magnitude(const Tensor& t) {
  double largest = 0;
  for (double v : t.to_vector<double>())
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  return largest;
}

/// Same shape, and every element within `bound`; NaN and infinities only beside their like.
inline testing::AssertionResult within(const Tensor& actual, const Tensor& expected, double bound) {
  if (actual.defined() != expected.defined()) return testing::AssertionFailure() << (actual.defined() ? "defined" : "undefined");
  if (!actual.defined()) return testing::AssertionSuccess();
  if (actual.shape() != expected.shape()) return testing::AssertionFailure() << "shape " << actual.shape() << ", expected " << expected.shape();
  const std::vector<double> a = actual.to_vector<double>(), e = expected.to_vector<double>();
  std::size_t worst = a.size();
  double largest = -1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool alike = a[i] == e[i] || (std::isnan(a[i]) && std::isnan(e[i]));
    const double gap = alike ? 0 : std::abs(a[i] - e[i]);
    if (!alike && !(gap <= bound) && !(gap <= largest)) worst = i, largest = std::isnan(gap) ? HUGE_VAL : gap;
  }
  if (worst == a.size()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "element " << worst << " of shape " << expected.shape() << " is " << a[worst] << ", expected " << e[worst]
                                     << ", off by " << largest << ", allowed " << bound;
}

/// As `within`, relative to the largest magnitude that is expected.
inline testing::AssertionResult close(const Tensor& actual, const Tensor& expected, double relative) {
  return within(actual, expected, expected.defined() ? relative * magnitude(expected) : 0);
}

/// Equal bit for bit, but for the sign of zeros and the bits of NaN.
inline testing::AssertionResult same(const Tensor& actual, const Tensor& expected) { return within(actual, expected, 0); }

/// The elements in logical order, each within 1e-7 unless told otherwise.
inline testing::AssertionResult holds(const Tensor& t, const std::vector<double>& expected, double bound = 1e-7) {
  if (!t.defined()) return testing::AssertionFailure() << "undefined";
  if (t.numel() != static_cast<Index>(expected.size())) return testing::AssertionFailure() << t.numel() << " elements: shape " << t.shape();
  return within(t, from_vector(expected, t.shape()), bound);
}

/// The text of the exception of type E that `f` throws; anything else is a failure.
template <class E, class F>
std::string thrown(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another exception: " << e.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

inline Tensor leaf(Tensor t) { return t.requires_grad_(); }

}  // namespace heed::test
