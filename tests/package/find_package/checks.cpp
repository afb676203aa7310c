// Gradient checks as a user runs them, and a checker that can fail.
#include <heed/autograd/op.h>  // what an op author needs
#include <heed/heed.h>

#include <cstdio>
#include <cstdlib>

using namespace heed;

static void require(bool ok, const char* what) {
  if (!ok) std::printf("failed: %s\n", what), std::exit(1);
}

// y = x^2 with a backward that is off by `factor`
static Tensor square_with_factor(const Tensor& x, double factor) {
  Tensor y;
  {
    NoGrad off;
    y = x * x;
  }
  return record("square_with_factor", y, x,
                [x = saved(x), factor](const BackwardContext&, const Tensor& dy) -> Grads { return {2 * factor * x.get() * dy}; });
}

int main() {
  manual_seed(3);
  nn::SingleHeadSelfAttention head(6, 4);
  nn::to(head, f64);
  Tensor x = randn({2, 5, 6}, f64);
  x.requires_grad_();
  NamedTensors wrt = nn::named_parameters(head);
  wrt.emplace_back("x", x);

  GradcheckReport r = gradcheck([&] { return head(x, Mask::causal()).output; }, wrt);
  std::puts(r.message.c_str());
  require(r.ok, "the layer's gradients are right");
  require(gradgradcheck([&] { return head(x, Mask::causal()).output; }, wrt).ok, "second order");
  require(gradcheck([](const std::vector<Tensor>& in) { return softmax(in[0], -1); }, {randn({3, 4}, f64)}).ok, "plain function of tensors");

  for (double factor : {1.001, 0.5, -1.0}) {
    GradcheckReport bad = gradcheck([&](const std::vector<Tensor>& in) { return square_with_factor(in[0], factor); }, {randn({7}, f64)});
    std::puts(bad.message.c_str());
    require(!bad.ok && !bad.entries.empty(), "a wrong factor is found and located");
  }
  require(gradcheck([&](const std::vector<Tensor>& in) { return square_with_factor(in[0], 1.0); }, {randn({7}, f64)}).ok,
          "a right op of a user passes");

  bool refused = false;
  try {
    gradcheck([](const std::vector<Tensor>& in) { return in[0] * in[0]; }, {randn({3}, f32)});
  } catch (const Error& e) {
    refused = true;
    std::puts(e.what());
  }
  require(refused, "f32 is refused unless asked for");

  require(nn::check_causality([&](const Tensor& t) { return head(t, Mask::causal()).output; }, randn({1, 6, 6}, f64)).ok, "causal");
  auto leak = nn::check_causality([&](const Tensor& t) { return head(t).output; }, randn({1, 6, 6}, f64));
  std::puts(leak.message.c_str());
  require(!leak.ok, "a layer that sees the future is found out");
  std::puts("ok");
}
