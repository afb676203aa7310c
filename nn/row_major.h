#pragma once

#include "../tensor/tensor.h"

namespace heed::detail {

/// Lets `f(Tensor&)` change the elements of `t` in row-major order: in place where they lie so, else through a copy that is written back.
template <class F>
void change_row_major(Tensor t, F f) {
  if (t.is_contiguous()) {
    f(t);
    return;
  }
  Tensor copy = contiguous_data(t);
  f(copy);
  Tensor target = t.detach();  // its own handle has no history, so that writing needs no NoGrad
  target.copy_(copy);
}

}  // namespace heed::detail
