#include "kv_cache.h"

#include <algorithm>

#include "../autograd/op.h"
#include "../autograd/ops.h"
#include "../tensor/raise.h"

namespace heed {
namespace {

constexpr const char* name = "KVCache";

/// A batch of rows without their number.
Dims without_rows(const Tensor& t) {
  Dims d = t.shape();
  d.erase(d.size() - 2);
  return d;
}

void check_fits(const OpName& op, const char* what, const Tensor& held, const Tensor& added) {
  if (added.dtype() != held.dtype()) detail::raise<DTypeError>(op, "holds {} of {}, got {}", what, held.dtype(), added.dtype());
  if (without_rows(added) != without_rows(held))
    detail::raise<ShapeError>(op, "holds {} of shape (..., T, d) = {}, which {} does not continue", what, held.shape(), added.shape());
}

Tensor first_rows(const Tensor& buffer, Index count) { return slice(buffer, -2, 0, count); }

/// A buffer with room for `capacity` rows, beginning with the first `count` of `held`.
Tensor grown(const Tensor& held, const Tensor& like, Index count, Index capacity) {
  Dims shape = like.shape();
  shape[shape.size() - 2] = capacity;
  const Tensor buffer = empty(shape, like.dtype());
  if (count > 0) first_rows(buffer, count).copy_(first_rows(held, count));
  return buffer;
}

}  // namespace

void detail::require_no_recording(const OpName& op) {
  if (thread_state.grad_enabled)
    raise<GradError>(op, "a cache works without recording only, since what it holds has no history: put a NoGrad guard before the call");
}

namespace nn {

KVCache::KVCache(const KVCache& other) : length_(other.length_) {
  if (!other.keys_.defined()) return;
  const NoGrad off;
  keys_ = grown(other.keys_, other.keys_, length_, other.capacity());
  values_ = grown(other.values_, other.values_, length_, other.capacity());
}

void KVCache::swap(KVCache& other) noexcept { std::swap(keys_, other.keys_), std::swap(values_, other.values_), std::swap(length_, other.length_); }

std::pair<Tensor, Tensor> KVCache::append(const Tensor& new_keys, const Tensor& new_values, Caller caller) {
  const OpName op{name, caller};
  detail::require_no_recording(op);
  if (new_keys.impl(op).layout.shape.size() < 2 || new_values.impl(op).layout.shape.size() < 2 || new_keys.size(-2) != new_values.size(-2))
    detail::raise<ShapeError>(op, "wants keys (..., T, d_k) and as many values (..., T, d_v): {} and {}", new_keys.shape(), new_values.shape());
  if (keys_.defined()) check_fits(op, "keys", keys_, new_keys), check_fits(op, "values", values_, new_values);
  const Index count = new_keys.size(-2), total = length_ + count;
  if (total > capacity() || !keys_.defined()) {
    const Index room = std::max({total, 2 * capacity(), Index{16}});
    Tensor k = grown(keys_, new_keys, length_, room), v = grown(values_, new_values, length_, room);
    keys_ = std::move(k), values_ = std::move(v);
  }
  if (count > 0) {
    slice(keys_, -2, length_, total).copy_(new_keys);
    slice(values_, -2, length_, total).copy_(new_values);
  }
  length_ = total;
  return {first_rows(keys_, total), first_rows(values_, total)};
}

void KVCache::truncate(Index length) {
  if (length < 0 || length > length_) detail::raise<IndexError>("{}: cannot be truncated to {} of {} positions", name, length, length_);
  length_ = length;
}

Tensor KVCache::keys() const { return keys_.defined() ? first_rows(keys_, length_) : Tensor(); }
Tensor KVCache::values() const { return values_.defined() ? first_rows(values_, length_) : Tensor(); }

}  // namespace nn
}  // namespace heed
