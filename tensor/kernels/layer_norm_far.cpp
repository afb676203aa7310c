#include "layer_norm_far.h"

namespace heed::kernels {
namespace {

/// The exponent of the largest magnitude; 0 when all are 0 or one is not finite.
template <class T>
int exponent_of(const T* x, Index n) {
  double largest = 0;
  for (Index j = 0; j < n; ++j) largest = std::max(largest, std::abs(static_cast<double>(x[j])));
  return largest > 0 && std::isfinite(largest) ? std::ilogb(largest) : 0;
}

template <class T>
double scaled(T value, int exponent) {
  return std::ldexp(static_cast<double>(value), exponent);
}

/// A row x = 2^exponent z, and the numbers of z.
template <class T>
class Row {
 public:
  Row(const T* x, double eps, Index n) : x_(x), exponent_(exponent_of(x, n)) {
    if (eps > 0) exponent_ = std::max(exponent_, std::ilogb(eps) / 2);
    const double count = static_cast<double>(n);
    double sum = 0, left = 0, squares = 0;
    for (Index j = 0; j < n; ++j) sum += z(j);
    const double rough = sum / count;
    for (Index j = 0; j < n; ++j) left += z(j) - rough, squares += (z(j) - rough) * (z(j) - rough);
    left /= count;
    mean_ = rough + left;
    rstd_ = 1 / std::sqrt(std::max(squares / count - left * left, 0.0) + std::ldexp(eps, -2 * exponent_));
  }
  int exponent() const { return exponent_; }
  double mean() const { return mean_; }
  double rstd() const { return rstd_; }
  double normalized(Index j) const { return (z(j) - mean_) * rstd_; }

 private:
  double z(Index j) const { return scaled(x_[j], -exponent_); }

  const T* x_;
  int exponent_;
  double mean_, rstd_;
};

}  // namespace

template <class T>
void far_row(T* y, T* mean, T* rstd, const T* x, const T* weight, const T* bias, double eps, Index n) {
  const Row<T> row(x, eps, n);
  *mean = static_cast<T>(scaled(row.mean(), row.exponent()));
  *rstd = static_cast<T>(scaled(row.rstd(), -row.exponent()));
  for (Index j = 0; j < n; ++j)
    y[j] = static_cast<T>(row.normalized(j) * static_cast<double>(weight ? weight[j] : T{1}) + static_cast<double>(bias ? bias[j] : T{0}));
}

template <class T>
void far_row_backward(T* dx, T* dweight, T* dbias, const T* dy, const T* x, const T* weight, double eps, Index n) {
  const Row<T> row(x, eps, n);
  const int of_dy = exponent_of(dy, n), of_weight = weight ? exponent_of(weight, n) : 0;
  const auto gradient = [=](Index j) { return scaled(dy[j], -of_dy) * (weight ? scaled(weight[j], -of_weight) : 1); };
  double sum = 0, dot = 0;
  for (Index j = 0; j < n; ++j) sum += gradient(j), dot += gradient(j) * row.normalized(j);
  sum /= static_cast<double>(n), dot /= static_cast<double>(n);
  for (Index j = 0; j < n; ++j) {
    const double xh = row.normalized(j);
    if (dx) dx[j] = static_cast<T>(scaled(row.rstd() * (gradient(j) - sum - xh * dot), of_dy + of_weight - row.exponent()));
    if (dweight) dweight[j] = static_cast<T>(static_cast<double>(dweight[j]) + static_cast<double>(dy[j]) * xh);
    if (dbias) dbias[j] += dy[j];
  }
}

template <class T>
void far_parameters(T* dweight, T* dbias, const T* dy, const T* x, double eps, Index rows, Index n, double* sums) {
  constexpr int down = -64;  // no sum of so many elements overflows
  std::fill_n(sums, 2 * n, 0.0);
  for (Index r = 0; r < rows; ++r, x += n, dy += n) {
    const Row<T> row(x, eps, n);
    for (Index j = 0; j < n; ++j) {
      const double up = scaled(dy[j], down);
      sums[j] += up * row.normalized(j), sums[n + j] += up;
    }
  }
  const auto replace = [n](T* out, const double* by) {
    for (Index j = 0; out && j < n; ++j)
      if (!std::isfinite(out[j])) out[j] = static_cast<T>(scaled(by[j], -down));
  };
  replace(dweight, sums), replace(dbias, sums + n);
}

template void far_row(float*, float*, float*, const float*, const float*, const float*, double, Index);
template void far_row(double*, double*, double*, const double*, const double*, const double*, double, Index);
template void far_row_backward(float*, float*, float*, const float*, const float*, const float*, double, Index);
template void far_row_backward(double*, double*, double*, const double*, const double*, const double*, double, Index);
template void far_parameters(float*, float*, const float*, const float*, double, Index, Index, double*);
template void far_parameters(double*, double*, const double*, const double*, double, Index, Index, double*);

}  // namespace heed::kernels
