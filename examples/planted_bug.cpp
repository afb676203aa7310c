// An op of one's own, a layer that uses it, and the report that finds the bug planted in the op's backward.
#include <heed/autograd/op.h>
#include <heed/heed.h>

#include <iostream>

using namespace heed;

// y = x / (1 + |x|), dx = dy / (1 + |x|)^2. The square was forgotten.
Tensor softsign(const Tensor& x, Caller caller = Caller::here()) {
  Tensor y;
  {
    NoGrad off;  // the forward is part of this op: it needs no graph of its own
    y = x / (1 + abs(x));
  }
  return record({"softsign", caller}, y, x, [x = saved(x)](const BackwardContext&, const Tensor& dy) -> Grads { return {dy / (1 + abs(x.get()))}; });
}

struct Gate {
  nn::Linear value{3, 2}, gate{3, 2};
  Tensor operator()(const Tensor& x) const { return value(x) * softsign(gate(x)); }
  void visit(nn::Visitor& v) { v("value", value), v("gate", gate); }
};

int main() {
  manual_seed(1);
  Gate layer;
  nn::to(layer, f64);
  const Tensor x = randn({4, 3}, f64);
  const GradcheckReport report = gradcheck([&] { return layer(x); }, nn::named_parameters(layer), {.max_entries = 2});
  std::cout << report.message << "\n";
  return report.ok ? 1 : 0;  // the bug must be found
}
