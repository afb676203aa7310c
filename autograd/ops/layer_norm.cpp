#include "../../tensor/kernels/layer_norm.h"

#include <cmath>

#include "forward.h"

namespace heed {
namespace {

/// Of each row the power of two that brings its deviations near 1, where their squares might overflow or vanish, and 1 where they do not; undefined
/// when all are 1. `rows` is the shape of the result.
Tensor scales(const Tensor& rstd, const Dims& rows) {
  Tensor s = detail::make_empty(rows, rstd.dtype());
  bool near = true;
  detail::dispatch_float(rstd.dtype(), [&]<class T>() {
    constexpr int safe = std::numeric_limits<T>::max_exponent / 4;
    const T* from = rstd.data<T>();
    T* to = s.mutable_data<T>();
    for (Index i = 0; i < rstd.numel(); ++i) {
      const int exponent = std::ilogb(std::clamp(from[i], std::numeric_limits<T>::denorm_min(), std::numeric_limits<T>::max()));
      const bool scaled = !std::isnan(from[i]) && std::abs(exponent) > safe;
      to[i] = scaled ? std::ldexp(T{1}, exponent) : T{1};
      near = near && !scaled;
    }
  });
  return near ? Tensor() : s;
}

/// The same function composed from ops: for derivatives of derivatives, and what tests hold the kernel against. `scale` as from `scales`: the norm of
/// a multiple is the norm, but for eps.
Tensor composed(const Tensor& x, const Dims& dims, const Tensor& weight, const Tensor& bias, double eps, const Tensor& scale) {
  const Tensor z = scale.defined() ? x * scale : x, centered = z - mean(z, dims, true), variance = mean(square(centered), dims, true);
  Tensor y = centered * rsqrt(scale.defined() ? variance + (std::sqrt(eps) * scale) * (std::sqrt(eps) * scale) : variance + eps);
  if (weight.defined()) y = y * weight;
  return bias.defined() ? y + bias : y;
}

void check_affine(const OpName& op, const char* what, const Tensor& t, const Tensor& x, const Dims& normalized_shape) {
  if (!t.defined()) return;
  detail::require_same_dtype(op, x, t);
  if (t.shape() != normalized_shape) detail::raise<ShapeError>(op, "the {} {} is not of normalized_shape {}", what, t.shape(), normalized_shape);
}

template <class T>
T* data_or_null(Tensor& t) {
  return t.defined() ? t.mutable_data<T>() : nullptr;
}

}  // namespace

// With xh = (x - mean) rstd and g = dy weight: dx = rstd (g - mean g - xh mean(g xh)), dweight = sum dy xh, dbias = sum dy
Tensor layer_norm(const Tensor& x, const Dims& normalized_shape, const Tensor& weight, const Tensor& bias, double eps, Caller caller) {
  const OpName op{"layer_norm", caller};
  detail::require_float(op, x);
  const std::size_t rank = normalized_shape.size(), shift = x.shape().size() - rank;
  if (rank == 0 || rank > x.shape().size() || !std::equal(normalized_shape.begin(), normalized_shape.end(), x.shape().begin() + shift))
    detail::raise<ShapeError>(op, "{} does not end in normalized_shape {}", x.shape(), normalized_shape);
  check_affine(op, "weight", weight, x, normalized_shape);
  check_affine(op, "bias", bias, x, normalized_shape);

  const Index columns = detail::numel(normalized_shape), rows = columns == 0 ? 0 : x.numel() / columns;
  const Tensor in = detail::contiguous_data(x);
  const Tensor gain = weight.defined() ? detail::contiguous_data(weight) : Tensor(),
               shift_by = bias.defined() ? detail::contiguous_data(bias) : Tensor();
  Tensor y = detail::make_empty(x.shape(), x.dtype(), op), mean = detail::make_empty({rows}, x.dtype(), op),
         rstd = detail::make_empty({rows}, x.dtype(), op);
  detail::dispatch_float(x.dtype(), [&]<class T>() {
    kernels::layer_norm<T>(y.mutable_data<T>(), mean.mutable_data<T>(), rstd.mutable_data<T>(), in.data<T>(),
                           gain.defined() ? gain.data<T>() : nullptr, shift_by.defined() ? shift_by.data<T>() : nullptr, eps, rows, columns);
  });
  Dims dims;
  for (std::size_t i = 0; i < rank; ++i) dims.push_back(static_cast<Index>(shift + i));
  return record(op, std::move(y), x, weight, bias,
                [x = saved(x), weight = saved(weight), bias = saved(bias), mean = saved(mean), rstd = saved(rstd), dims, normalized_shape, rows,
                 columns, eps](const BackwardContext& ctx, const Tensor& dy) -> Grads {
                  const Tensor value = x.get(), scale = weight.get(), offset = bias.get();
                  if (ctx.creates_graph()) {
                    const Tensor power = scales(rstd.get(), detail::reduced_shape(value.shape(), dims, true));
                    return detail::differentiate_twin(ctx, {value, scale, offset}, dy, [&](const std::vector<Tensor>& slots) {
                      return composed(slots[0], dims, slots[1], slots[2], eps, power);
                    });
                  }
                  const Tensor from = detail::contiguous_data(value), up = detail::contiguous_data(dy);
                  const Tensor factor = scale.defined() ? detail::contiguous_data(scale) : Tensor();
                  Tensor dx, dweight, dbias;
                  if (ctx.needs(0)) dx = detail::make_empty(value.shape(), value.dtype());
                  if (ctx.needs(1)) dweight = detail::make_empty(normalized_shape, value.dtype());
                  if (ctx.needs(2)) dbias = detail::make_empty(normalized_shape, value.dtype());
                  detail::dispatch_float(value.dtype(), [&]<class T>() {
                    kernels::layer_norm_backward<T>(data_or_null<T>(dx), data_or_null<T>(dweight), data_or_null<T>(dbias), up.data<T>(),
                                                    from.data<T>(), mean.get().data<T>(), rstd.get().data<T>(),
                                                    factor.defined() ? factor.data<T>() : nullptr, eps, rows, columns);
                  });
                  return {dx, dweight, dbias};
                });
}

}  // namespace heed
