#include "suits_onednn.h"

#include <algorithm>

#include "../backend.h"
#include "../parallel.h"
#include "onednn.h"
#include "parallel.h"

namespace heed::kernels {
namespace {

/// By the thread's Backend, or else by `faster()`.
template <class F>
bool suits(const F& faster) {
  switch (detail::backend()) {
    case Backend::portable: return false;
    case Backend::onednn: return onednn::available();
    default: return faster() && onednn::available();
  }
}

/// Multiplications from which on oneDNN is the faster one. Measured: up to 128 x 128 x 128 heed's tiles are as fast or faster.
constexpr Index product_work = 128 * 128 * 128 + 1;

}  // namespace

// oneDNN makes a program for every shape, which takes as long as 20 million multiplications. Sizes that grow token by token would pay that at every
// step, so only round numbers are brought to it; and what it computes depends on the number of threads.
bool product_suits_onednn(Index m, Index n, Index k) {
  if (detail::is_deterministic()) return false;
  return suits([=] { return m * n * k >= product_work && m % 8 == 0 && n % 8 == 0 && std::min(m, n) >= 16; });
}

// Only when asked for: heed's own rows are the faster ones at every size. Measured on a Zen 4 (own / oneDNN 2.6.3 in us, one thread, then two):
//
//   rows x columns   softmax, AVX-512            its gradient, AVX-512       softmax, AVX2
//   32 x 32          0.42 / 1.18    -            0.17 / 0.59    -            0.54 / 1.23    -
//   128 x 128        5.9 / 11.8     5.9 / 9.6    2.5 / 3.6      2.5 / 2.9    9.9 / 13.5     9.9 / 9.7
//   1024 x 64        23.5 / 49.8    21 / 36      8.3 / 14.8     5.0 / 8.4    37.5 / 55.1    19.8 / 35.2
//   24576 x 64       566 / 1210     287 / 864    288 / 381      125 / 187    908 / 1355     501 / 1001
//   512 x 512        82 / 189       44 / 110     41 / 43        23 / 24      158 / 189      82 / 134
//   2048 x 1024      637 / 1514     314 / 751    327 / 442      162 / 246    1259 / 1496    745 / 981
//   8192 x 1024      2687 / 6174    1428 / 3229  2213 / 2585    1005 / 2268  4981 / 6074    2638 / 3980
//
// oneDNN's times include the search for rows that it would get wrong (onednn.h); its gradient has a fast kernel with AVX-512 only. 3.7.2 on the same
// machine: own / oneDNN 0.4 to 0.7 for softmax, 0.6 to 0.85 for its gradient.
bool softmax_suits_onednn() {
  return suits([] { return false; });
}

}  // namespace heed::kernels
