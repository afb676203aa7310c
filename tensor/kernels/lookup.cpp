#include "lookup.h"

#include <algorithm>

#include "parallel.h"

namespace heed::kernels {
namespace {

/// Elements below which a thread is not worth waking.
constexpr Index grain = 16384;

}  // namespace

template <class T>
void take_rows(T* out, const T* table, const Index* ids, Index count, Index width) {
  parallel_for(count, std::max<Index>(grain / std::max<Index>(width, 1), 1), [=](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) std::copy_n(table + ids[i] * width, width, out + i * width);
  });
}

template <class T>
void add_rows(T* table, const T* x, const Index* ids, Index count, Index width) {
  // Threads share out the columns, so that rows which meet are added in one order.
  parallel_for(width, std::max<Index>(grain / std::max<Index>(count, 1), 16), [=](Index begin, Index end) {
    for (Index i = 0; i < count; ++i) {
      T* row = table + ids[i] * width;
      const T* from = x + i * width;
      for (Index j = begin; j < end; ++j) row[j] += from[j];
    }
  });
}

template <class T>
void pick(T* out, const T* x, const Index* index, const PickSizes& s) {
  for (Index o = 0; o < s.outer; ++o)
    for (Index i = 0; i < s.picks; ++i) {
      const Index at = (o * s.picks + i) * s.inner;
      for (Index r = 0; r < s.inner; ++r) out[at + r] = x[(o * s.length + index[at + r]) * s.inner + r];
    }
}

template <class T>
void add_picked(T* x, const T* y, const Index* index, const PickSizes& s) {
  for (Index o = 0; o < s.outer; ++o)
    for (Index i = 0; i < s.picks; ++i) {
      const Index at = (o * s.picks + i) * s.inner;
      for (Index r = 0; r < s.inner; ++r) x[(o * s.length + index[at + r]) * s.inner + r] += y[at + r];
    }
}

template void take_rows(float*, const float*, const Index*, Index, Index);
template void take_rows(double*, const double*, const Index*, Index, Index);
template void take_rows(Index*, const Index*, const Index*, Index, Index);
template void take_rows(bool*, const bool*, const Index*, Index, Index);
template void add_rows(float*, const float*, const Index*, Index, Index);
template void add_rows(double*, const double*, const Index*, Index, Index);
template void pick(float*, const float*, const Index*, const PickSizes&);
template void pick(double*, const double*, const Index*, const PickSizes&);
template void pick(Index*, const Index*, const Index*, const PickSizes&);
template void pick(bool*, const bool*, const Index*, const PickSizes&);
template void add_picked(float*, const float*, const Index*, const PickSizes&);
template void add_picked(double*, const double*, const Index*, const PickSizes&);

}  // namespace heed::kernels
